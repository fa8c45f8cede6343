"""A differentiation compiler: NumPy functions, SymPy expressions and expression files to machine-code gradients."""
