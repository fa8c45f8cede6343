/* Values and adjoints of the loop tasks as one would write them by hand: what is needed again is stored once per step, stages
   are recomputed, everything else stays in registers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- RK4 of the Lorenz system; the sum of squares of the end state ------------------------------------------------- */
static inline void lorenz_rhs(const double x[3], const double p[3], double k[3]) {
  k[0] = p[0] * (x[1] - x[0]);
  k[1] = x[0] * (p[1] - x[2]) - x[1];
  k[2] = x[0] * x[1] - p[2] * x[2];
}

/* adds the cotangents of x and p that a cotangent `a` of the right-hand side at x gives */
static inline void lorenz_rhs_adj(const double x[3], const double p[3], const double a[3], double xa[3], double pa[3]) {
  xa[0] += -p[0] * a[0] + (p[1] - x[2]) * a[1] + x[1] * a[2];
  xa[1] += p[0] * a[0] - a[1] + x[0] * a[2];
  xa[2] += -x[0] * a[1] - p[2] * a[2];
  pa[0] += (x[1] - x[0]) * a[0];
  pa[1] += x[0] * a[1];
  pa[2] -= x[2] * a[2];
}

static inline void lorenz_stages(const double x[3], const double p[3], double h, double x2[3], double x3[3], double x4[3],
                                 double next[3]) {
  double k1[3], k2[3], k3[3], k4[3];
  lorenz_rhs(x, p, k1);
  for (int j = 0; j < 3; j++) x2[j] = x[j] + 0.5 * h * k1[j];
  lorenz_rhs(x2, p, k2);
  for (int j = 0; j < 3; j++) x3[j] = x[j] + 0.5 * h * k2[j];
  lorenz_rhs(x3, p, k3);
  for (int j = 0; j < 3; j++) x4[j] = x[j] + h * k3[j];
  if (!next) return;
  lorenz_rhs(x4, p, k4);
  for (int j = 0; j < 3; j++) next[j] = x[j] + h / 6 * (k1[j] + 2 * (k2[j] + k3[j]) + k4[j]);
}

double lorenz(const double *x0, const double *p, long n, double h) {
  double x[3] = {x0[0], x0[1], x0[2]}, x2[3], x3[3], x4[3], next[3];
  for (long i = 0; i < n; i++) {
    lorenz_stages(x, p, h, x2, x3, x4, next);
    memcpy(x, next, sizeof x);
  }
  return x[0] * x[0] + x[1] * x[1] + x[2] * x[2];
}

double lorenz_grad(const double *x0, const double *p0, long n, double h, double *restrict x_adj, double *restrict p_adj) {
  double (*tape)[3] = malloc((size_t)n * sizeof *tape);
  double p[3] = {p0[0], p0[1], p0[2]};
  double x[3] = {x0[0], x0[1], x0[2]}, x2[3], x3[3], x4[3], next[3];
  for (long i = 0; i < n; i++) {
    memcpy(tape[i], x, sizeof x);
    lorenz_stages(x, p, h, x2, x3, x4, next);
    memcpy(x, next, sizeof x);
  }
  double value = x[0] * x[0] + x[1] * x[1] + x[2] * x[2];
  double a[3] = {2 * x[0], 2 * x[1], 2 * x[2]}, pa[3] = {0, 0, 0};
  for (long i = n - 1; i >= 0; i--) {
    double k[3], s4[3] = {0}, s3[3] = {0}, s2[3] = {0}, xa[3] = {a[0], a[1], a[2]};
    memcpy(x, tape[i], sizeof x);
    lorenz_stages(x, p, h, x2, x3, x4, NULL);
    for (int j = 0; j < 3; j++) k[j] = h / 6 * a[j];
    lorenz_rhs_adj(x4, p, k, s4, pa);
    for (int j = 0; j < 3; j++) xa[j] += s4[j], k[j] = h / 3 * a[j] + h * s4[j];
    lorenz_rhs_adj(x3, p, k, s3, pa);
    for (int j = 0; j < 3; j++) xa[j] += s3[j], k[j] = h / 3 * a[j] + 0.5 * h * s3[j];
    lorenz_rhs_adj(x2, p, k, s2, pa);
    for (int j = 0; j < 3; j++) xa[j] += s2[j], k[j] = h / 6 * a[j] + 0.5 * h * s2[j];
    lorenz_rhs_adj(x, p, k, xa, pa);
    memcpy(a, xa, sizeof a);
  }
  memcpy(x_adj, a, sizeof a);
  memcpy(p_adj, pa, sizeof pa);
  free(tape);
  return value;
}

/* -- an overdamped pendulum until a time: a while loop over scalars ------------------------------------------------- */
double pendulum(double x, double a, double b, double end, double dt) {
  for (double t = 0; t < end; t += dt) x += dt * (b - a * sin(x));
  return x;
}

/* the gradient for x, a, b; the number of steps is not known beforehand, so the tape grows */
double pendulum_grad(double x, double a, double b, double end, double dt, double *restrict xg, double *restrict ag,
                     double *restrict bg) {
  size_t n = 0, room = 1024;
  double *tape = malloc(room * sizeof *tape);
  for (double t = 0; t < end; t += dt) {
    if (n == room) tape = realloc(tape, (room *= 2) * sizeof *tape);
    tape[n++] = x;
    x += dt * (b - a * sin(x));
  }
  double xa = 1, aa = 0, ba = 0;
  while (n > 0) {
    double y = tape[--n], step = dt * xa;
    ba += step;
    aa -= step * sin(y);
    xa -= step * a * cos(y);
  }
  free(tape);
  *xg = xa, *ag = aa, *bg = ba;
  return x;
}

/* -- a tridiagonal solve, in place; half the sum of squares of the solution ----------------------------------------- */
double tridiagonal(const double *l, const double *d0, const double *u, const double *r0, long n) {
  double *d = malloc(2 * n * sizeof *d), *x = d + n, value = 0;
  memcpy(d, d0, n * sizeof *d);
  memcpy(x, r0, n * sizeof *x);
  for (long i = 1; i < n; i++) {
    double w = l[i] / d[i - 1];
    d[i] -= w * u[i - 1];
    x[i] -= w * x[i - 1];
  }
  x[n - 1] /= d[n - 1];
  for (long i = n - 2; i >= 0; i--) x[i] = (x[i] - u[i] * x[i + 1]) / d[i];
  for (long i = 0; i < n; i++) value += x[i] * x[i];
  free(d);
  return 0.5 * value;
}

/* step by step backwards through both sweeps; d and the right-hand side after elimination are kept beside the solution */
double tridiagonal_grad(const double *l, const double *d0, const double *u, const double *r0, long n, double *restrict la,
                        double *restrict da, double *restrict ua, double *restrict ra) {
  double *d = malloc(3 * n * sizeof *d), *y = d + n, *x = y + n, value = 0;
  memcpy(d, d0, n * sizeof *d);
  memcpy(y, r0, n * sizeof *y);
  for (long i = 1; i < n; i++) {
    double w = l[i] / d[i - 1];
    d[i] -= w * u[i - 1];
    y[i] -= w * y[i - 1];
  }
  x[n - 1] = y[n - 1] / d[n - 1];
  for (long i = n - 2; i >= 0; i--) x[i] = (y[i] - u[i] * x[i + 1]) / d[i];
  for (long i = 0; i < n; i++) value += x[i] * x[i];
  la[0] = 0, ua[n - 1] = 0;
  double xa = x[0];
  for (long i = 0; i < n - 1; i++) { /* x[i] = (y[i] - u[i] x[i+1]) / d[i] */
    double q = xa / d[i];
    ra[i] = q;
    ua[i] = -q * x[i + 1];
    da[i] = -q * x[i];
    xa = x[i + 1] - q * u[i];
  }
  ra[n - 1] = xa / d[n - 1];
  da[n - 1] = -ra[n - 1] * x[n - 1];
  for (long i = n - 1; i >= 1; i--) {
    double inverse = 1 / d[i - 1], w = l[i] * inverse, wa = -da[i] * u[i - 1] - ra[i] * y[i - 1];
    ua[i - 1] -= da[i] * w;
    ra[i - 1] -= ra[i] * w;
    la[i] = wa * inverse;
    da[i - 1] -= wa * w * inverse;
  }
  free(d);
  return 0.5 * value;
}

/* -- Gauss-Seidel sweeps of a dense system; half the sum of squares ------------------------------------------------- */
double seidel(const double *A, const double *b, long n, long sweeps) {
  double *x = calloc(n, sizeof *x), value = 0;
  for (long s = 0; s < sweeps; s++)
    for (long i = 0; i < n; i++) {
      double sum = 0;
      for (long j = 0; j < n; j++) sum += A[i * n + j] * x[j];
      x[i] += (b[i] - sum) / A[i * n + i];
    }
  for (long i = 0; i < n; i++) value += x[i] * x[i];
  free(x);
  return 0.5 * value;
}

/* each step is undone from the overwritten element, so the tape has one number per step */
double seidel_grad(const double *A, const double *b, long n, long sweeps, double *restrict Aa, double *restrict ba) {
  double *x = calloc(2 * n, sizeof *x), *xa = x + n, *tape = malloc(sweeps * n * sizeof *tape), value = 0;
  for (long s = 0; s < sweeps; s++)
    for (long i = 0; i < n; i++) {
      double sum = 0;
      for (long j = 0; j < n; j++) sum += A[i * n + j] * x[j];
      tape[s * n + i] = x[i];
      x[i] += (b[i] - sum) / A[i * n + i];
    }
  for (long i = 0; i < n; i++) value += x[i] * x[i], xa[i] = x[i];
  memset(Aa, 0, n * n * sizeof *Aa);
  memset(ba, 0, n * sizeof *ba);
  for (long s = sweeps - 1; s >= 0; s--)
    for (long i = n - 1; i >= 0; i--) {
      double now = x[i], q = xa[i] / A[i * n + i];
      x[i] = tape[s * n + i];
      ba[i] += q;
      Aa[i * n + i] -= q * (now - x[i]);
      for (long j = 0; j < n; j++) Aa[i * n + j] -= q * x[j], xa[j] -= q * A[i * n + j];
    }
  free(x);
  free(tape);
  return 0.5 * value;
}

/* -- a recurrent cell; half the sum of squares of the last state ---------------------------------------------------- */
static void cell(const double *W, const double *U, const double *b, const double *x, const double *h, long n, long m,
                 double *restrict next) {
  for (long i = 0; i < n; i++) {
    double sum = b[i];
    for (long j = 0; j < n; j++) sum += W[i * n + j] * h[j];
    for (long j = 0; j < m; j++) sum += U[i * m + j] * x[j];
    next[i] = tanh(sum);
  }
}

double recurrent(const double *W, const double *U, const double *b, const double *xs, long steps, long n, long m) {
  double *h = calloc(2 * n, sizeof *h), *next = h + n, value = 0;
  for (long t = 0; t < steps; t++) {
    cell(W, U, b, xs + t * m, h, n, m, next);
    memcpy(h, next, n * sizeof *h);
  }
  for (long i = 0; i < n; i++) value += h[i] * h[i];
  free(h);
  return 0.5 * value;
}

double recurrent_grad(const double *W, const double *U, const double *b, const double *xs, long steps, long n, long m,
                      double *restrict Wa, double *restrict Ua, double *restrict ba) {
  double *h = calloc((steps + 1) * n, sizeof *h), *ha = calloc(2 * n, sizeof *ha), *back = ha + n, value = 0;
  for (long t = 0; t < steps; t++) cell(W, U, b, xs + t * m, h + t * n, n, m, h + (t + 1) * n);
  for (long i = 0; i < n; i++) value += h[steps * n + i] * h[steps * n + i], ha[i] = h[steps * n + i];
  memset(Wa, 0, n * n * sizeof *Wa);
  memset(Ua, 0, n * m * sizeof *Ua);
  memset(ba, 0, n * sizeof *ba);
  for (long t = steps - 1; t >= 0; t--) {
    const double *old = h + t * n, *new = old + n, *x = xs + t * m;
    memset(back, 0, n * sizeof *back);
    for (long i = 0; i < n; i++) {
      double s = ha[i] * (1 - new[i] * new[i]);
      ba[i] += s;
      for (long j = 0; j < n; j++) Wa[i * n + j] += s * old[j], back[j] += s * W[i * n + j];
      for (long j = 0; j < m; j++) Ua[i * m + j] += s * x[j];
    }
    memcpy(ha, back, n * sizeof *ha);
  }
  free(h);
  free(ha);
  return 0.5 * value;
}

/* -- an explicit heat equation with a sink; half the sum of squares ------------------------------------------------- */
double heat(const double *u0, double r, double c, long n, long steps) {
  double *u = malloc(2 * n * sizeof *u), *v = u + n, value = 0;
  memcpy(u, u0, n * sizeof *u);
  for (long t = 0; t < steps; t++) {
    for (long i = 1; i < n - 1; i++) v[i] = u[i] + r * (u[i + 1] - 2 * u[i] + u[i - 1]) - c * u[i] * u[i];
    memcpy(u + 1, v + 1, (n - 2) * sizeof *u);
  }
  for (long i = 0; i < n; i++) value += u[i] * u[i];
  free(u);
  return 0.5 * value;
}

double heat_grad(const double *u0, double r, double c, long n, long steps, double *restrict ua, double *restrict rg,
                 double *restrict cg) {
  double *u = malloc((steps + 1) * n * sizeof *u), *va = malloc(n * sizeof *va), value = 0, ra = 0, ca = 0;
  memcpy(u, u0, n * sizeof *u);
  for (long t = 0; t < steps; t++) {
    const double *a = u + t * n;
    double *restrict b = u + (t + 1) * n;
    b[0] = a[0], b[n - 1] = a[n - 1];
    for (long i = 1; i < n - 1; i++) b[i] = a[i] + r * (a[i + 1] - 2 * a[i] + a[i - 1]) - c * a[i] * a[i];
  }
  for (long i = 0; i < n; i++) value += u[steps * n + i] * u[steps * n + i], ua[i] = u[steps * n + i];
  for (long t = steps - 1; t >= 0; t--) {
    const double *a = u + t * n;
    double first = ua[0], last = ua[n - 1];
    memcpy(va, ua, n * sizeof *va);
    va[0] = va[n - 1] = 0;
    for (long i = 1; i < n - 1; i++) {
      ra += va[i] * (a[i + 1] - 2 * a[i] + a[i - 1]);
      ca -= va[i] * a[i] * a[i];
    }
    for (long i = 1; i < n - 1; i++) ua[i] = va[i] * (1 - 2 * r - 2 * c * a[i]) + r * (va[i - 1] + va[i + 1]);
    ua[0] = first + r * va[1];
    ua[n - 1] = last + r * va[n - 2];
  }
  free(u);
  free(va);
  *rg = ra, *cg = ca;
  return 0.5 * value;
}
