/* Values and gradients of the formulas and regressions by hand: one pass over the data wherever that is possible. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

double sine(double x, double y) { return x * y + sin(x); }

double sine_grad(double x, double y, double *restrict xa, double *restrict ya) {
  *xa = y + cos(x);
  *ya = x;
  return x * y + sin(x);
}

double rosenbrock(const double *x, long n) {
  double sum = 0;
  for (long i = 0; i < n - 1; i++) {
    double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
    sum += 100 * a * a + b * b;
  }
  return sum;
}

double rosenbrock_grad(const double *x, long n, double *restrict g) {
  double sum = 0, from_left = 0;
  for (long i = 0; i < n - 1; i++) {
    double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
    sum += 100 * a * a + b * b;
    g[i] = from_left - 400 * a * x[i] - 2 * b;
    from_left = 200 * a;
  }
  g[n - 1] = from_left;
  return sum;
}

double elementwise(const double *x, double a, double b, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) {
    double t = tanh(a * x[i] + b), s = x[i] * x[i];
    sum += t * t * exp(-s) / (1 + s);
  }
  return sum;
}

double elementwise_grad(const double *x, double a, double b, long n, double *restrict g, double *restrict ga,
                        double *restrict gb) {
  double sum = 0, xs = 0, ones = 0;
  for (long i = 0; i < n; i++) {
    double t = tanh(a * x[i] + b), s = x[i] * x[i], q = 1 / (1 + s), f = exp(-s) * q, c = 2 * t * (1 - t * t) * f;
    sum += t * t * f;
    g[i] = c * a - 2 * x[i] * t * t * f * (1 + q);
    xs += c * x[i];
    ones += c;
  }
  *ga = xs;
  *gb = ones;
  return sum;
}

double logistic(const double *w, const double *X, const double *y, double ridge, long n, long p) {
  double sum = 0, squares = 0;
  for (long i = 0; i < n; i++) {
    double z = 0;
    for (long j = 0; j < p; j++) z += X[i * p + j] * w[j];
    sum += log1p(exp(-y[i] * z));
  }
  for (long j = 0; j < p; j++) squares += w[j] * w[j];
  return sum / n + 0.5 * ridge * squares;
}

double logistic_grad(const double *w, const double *X, const double *y, double ridge, long n, long p, double *restrict g) {
  double sum = 0, squares = 0;
  memset(g, 0, p * sizeof *g);
  for (long i = 0; i < n; i++) {
    double z = 0;
    for (long j = 0; j < p; j++) z += X[i * p + j] * w[j];
    double e = exp(-y[i] * z), r = -y[i] * e / (1 + e);
    sum += log1p(e);
    for (long j = 0; j < p; j++) g[j] += r * X[i * p + j];
  }
  for (long j = 0; j < p; j++) squares += w[j] * w[j], g[j] = g[j] / n + ridge * w[j];
  return sum / n + 0.5 * ridge * squares;
}

double quasi_poisson(const double *b, const double *X, const double *y, long n, long p) {
  double sum = 0;
  for (long i = 0; i < n; i++) {
    double z = 0;
    for (long j = 0; j < p; j++) z += X[i * p + j] * b[j];
    sum += y[i] * z - exp(z);
  }
  return sum;
}

double quasi_poisson_grad(const double *b, const double *X, const double *y, long n, long p, double *restrict g) {
  double sum = 0;
  memset(g, 0, p * sizeof *g);
  for (long i = 0; i < n; i++) {
    double z = 0;
    for (long j = 0; j < p; j++) z += X[i * p + j] * b[j];
    double mu = exp(z), r = y[i] - mu;
    sum += y[i] * z - mu;
    for (long j = 0; j < p; j++) g[j] += r * X[i * p + j];
  }
  return sum;
}

/* -- loops; the final state goes to `end` --------------------------------------------------------------------------- */
double doubling(const double *x, long n, double *restrict end) {
  for (long i = 0; i < n; i++) end[i] = 2 * x[i];
  for (;;) {
    double sum = 0;
    for (long i = 0; i < n; i++) sum += end[i] * end[i];
    if (sqrt(sum) >= 1000) return 0;
    for (long i = 0; i < n; i++) end[i] *= 2;
  }
}

double doubling_grad(const double *x, long n, const double *seed, double *restrict end, double *restrict g) {
  double k = 2;
  for (long i = 0; i < n; i++) end[i] = 2 * x[i];
  for (;;) {
    double sum = 0;
    for (long i = 0; i < n; i++) sum += end[i] * end[i];
    if (sqrt(sum) >= 1000) break;
    for (long i = 0; i < n; i++) end[i] *= 2;
    k *= 2;
  }
  for (long i = 0; i < n; i++) g[i] = k * seed[i];
  return 0;
}

static inline double force(double x, double v, double mu) { return mu * (1 - x * x) * v - x; }

double van_der_pol(const double *state, double mu, long steps, double h, double *restrict end) {
  double x = state[0], v = state[1];
  for (long i = 0; i < steps; i++) {
    double b1 = force(x, v, mu), x2 = x + 0.5 * h * v, v2 = v + 0.5 * h * b1;
    double b2 = force(x2, v2, mu), x3 = x + 0.5 * h * v2, v3 = v + 0.5 * h * b2;
    double b3 = force(x3, v3, mu), x4 = x + h * v3, v4 = v + h * b3, b4 = force(x4, v4, mu);
    x += h / 6 * (v + 2 * v2 + 2 * v3 + v4);
    v += h / 6 * (b1 + 2 * b2 + 2 * b3 + b4);
  }
  end[0] = x, end[1] = v;
  return 0;
}

/* cotangents (s, t) of a stage's slopes at (x, v) become cotangents (p, q) of x and v, and a part of mu's */
static inline void force_adj(double x, double v, double mu, double s, double t, double *p, double *q, double *r) {
  *p = (-2 * mu * x * v - 1) * t;
  *q = s + mu * (1 - x * x) * t;
  *r += (1 - x * x) * v * t;
}

double van_der_pol_grad(const double *state, double mu, long steps, double h, const double *seed, double *restrict end,
                        double *restrict sa, double *restrict mua) {
  double(*tape)[2] = malloc((size_t)steps * sizeof *tape);
  double x = state[0], v = state[1];
  for (long i = 0; i < steps; i++) {
    tape[i][0] = x, tape[i][1] = v;
    double b1 = force(x, v, mu), x2 = x + 0.5 * h * v, v2 = v + 0.5 * h * b1;
    double b2 = force(x2, v2, mu), x3 = x + 0.5 * h * v2, v3 = v + 0.5 * h * b2;
    double b3 = force(x3, v3, mu), x4 = x + h * v3, v4 = v + h * b3, b4 = force(x4, v4, mu);
    x += h / 6 * (v + 2 * v2 + 2 * v3 + v4);
    v += h / 6 * (b1 + 2 * b2 + 2 * b3 + b4);
  }
  end[0] = x, end[1] = v;
  double p = seed[0], q = seed[1], r = 0, p1, q1, p2, q2, p3, q3, p4, q4;
  for (long i = steps - 1; i >= 0; i--) {
    x = tape[i][0], v = tape[i][1];
    double x2 = x + 0.5 * h * v, v2 = v + 0.5 * h * force(x, v, mu);
    double x3 = x + 0.5 * h * v2, v3 = v + 0.5 * h * force(x2, v2, mu);
    double x4 = x + h * v3, v4 = v + h * force(x3, v3, mu);
    double s = h / 6 * p, t = h / 6 * q;
    force_adj(x4, v4, mu, s, t, &p4, &q4, &r);
    force_adj(x3, v3, mu, 2 * s + h * p4, 2 * t + h * q4, &p3, &q3, &r);
    force_adj(x2, v2, mu, 2 * s + 0.5 * h * p3, 2 * t + 0.5 * h * q3, &p2, &q2, &r);
    force_adj(x, v, mu, s + 0.5 * h * p2, t + 0.5 * h * q2, &p1, &q1, &r);
    p += p1 + p2 + p3 + p4;
    q += q1 + q2 + q3 + q4;
  }
  free(tape);
  sa[0] = p, sa[1] = q, *mua = r;
  return 0;
}

/* -- the potential of bodies ------------------------------------------------------------------------------------------ */
double bodies(const double *x, const double *m, long n) {
  double energy = 0;
  for (long i = 0; i < n; i++)
    for (long j = i + 1; j < n; j++) {
      double dx = x[3 * i] - x[3 * j], dy = x[3 * i + 1] - x[3 * j + 1], dz = x[3 * i + 2] - x[3 * j + 2];
      energy -= m[i] * m[j] / sqrt(dx * dx + dy * dy + dz * dz + 0.01);
    }
  return energy;
}

double bodies_grad(const double *x, const double *m, long n, double *restrict g) {
  double energy = 0;
  memset(g, 0, 3 * n * sizeof *g);
  for (long i = 0; i < n; i++)
    for (long j = i + 1; j < n; j++) {
      double dx = x[3 * i] - x[3 * j], dy = x[3 * i + 1] - x[3 * j + 1], dz = x[3 * i + 2] - x[3 * j + 2];
      double s = dx * dx + dy * dy + dz * dz + 0.01, term = m[i] * m[j] / sqrt(s), pull = term / s;
      energy -= term;
      g[3 * i] += pull * dx, g[3 * i + 1] += pull * dy, g[3 * i + 2] += pull * dz;
      g[3 * j] -= pull * dx, g[3 * j + 1] -= pull * dy, g[3 * j + 2] -= pull * dz;
    }
  return energy;
}
