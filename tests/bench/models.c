/* ADBench's Gaussian mixture and its memory network: values and gradients derived by hand from the definitions. Loops run over
   contiguous memory without a dependence wherever there is a choice, so that the compiler vectorises them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double largest(const double *x, long n) {
  double top = x[0];
  for (long i = 1; i < n; i++)
    if (x[i] > top) top = x[i];
  return top;
}

static double logsumexp(const double *x, long n) {
  double top = largest(x, n), sum = 0;
  for (long i = 0; i < n; i++) sum += exp(x[i] - top);
  return log(sum) + top;
}

static double log_gamma(double a, long d) { /* multivariate */
  double sum = 0.25 * d * (d - 1) * log(M_PI);
  for (long j = 0; j < d; j++) sum += lgamma(a - 0.5 * j);
  return sum;
}

/* z = L c, L given by the exponentials of its diagonal and the columns of its strict lower triangle */
static void times(const double *diagonal, const double *lower, const double *c, long d, double *restrict z) {
  for (long i = 0; i < d; i++) z[i] = diagonal[i] * c[i];
  for (long j = 0; j < d; j++) {
    double *restrict below = z + j + 1;
    for (long i = 0; i < d - j - 1; i++) below[i] += lower[i] * c[j];
    lower += d - j - 1;
  }
}

static double prior(const double *q, const double *diagonal, const double *icf, long d, long K, double gamma, long m) {
  long tri = d * (d - 1) / 2, freedom = d + m + 1;
  double sum = 0;
  for (long k = 0; k < K; k++) {
    double squares = 0;
    const double *lower = icf + k * (d + tri) + d;
    for (long i = 0; i < d; i++) squares += diagonal[k * d + i] * diagonal[k * d + i];
    for (long i = 0; i < tri; i++) squares += lower[i] * lower[i];
    sum += 0.5 * gamma * gamma * squares - m * q[k];
  }
  return sum - K * (freedom * d * (log(gamma) - 0.5 * log(2)) - log_gamma(0.5 * freedom, d));
}

static void prepared(const double *icf, long d, long K, double *restrict q, double *restrict diagonal) {
  for (long k = 0; k < K; k++) {
    const double *row = icf + k * (d + d * (d - 1) / 2);
    q[k] = 0;
    for (long i = 0; i < d; i++) q[k] += row[i], diagonal[k * d + i] = exp(row[i]);
  }
}

double mixture(const double *alpha, const double *mu, const double *icf, const double *x, double gamma, long m, long n, long d,
               long K) {
  long size = d + d * (d - 1) / 2;
  double *q = malloc((2 * K + K * d + 2 * d) * sizeof *q), *beta = q + K, *diagonal = beta + K, *c = diagonal + K * d, *z = c + d;
  double value = 0;
  prepared(icf, d, K, q, diagonal);
  for (long i = 0; i < n; i++) {
    for (long k = 0; k < K; k++) {
      double squares = 0;
      for (long j = 0; j < d; j++) c[j] = x[i * d + j] - mu[k * d + j];
      times(diagonal + k * d, icf + k * size + d, c, d, z);
      for (long j = 0; j < d; j++) squares += z[j] * z[j];
      beta[k] = alpha[k] + q[k] - 0.5 * squares;
    }
    value += logsumexp(beta, K);
  }
  value += prior(q, diagonal, icf, d, K, gamma, m) - n * logsumexp(alpha, K) - 0.5 * n * d * log(2 * M_PI);
  free(q);
  return value;
}

double mixture_grad(const double *alpha, const double *mu, const double *icf, const double *x, double gamma, long m, long n,
                    long d, long K, double *restrict alpha_adj, double *restrict mu_adj, double *restrict icf_adj) {
  long size = d + d * (d - 1) / 2;
  double *q = malloc((2 * K + 3 * K * d + d) * sizeof *q), *beta = q + K, *diagonal = beta + K, *cs = diagonal + K * d;
  double *zs = cs + K * d, *back = zs + K * d, value = 0;
  prepared(icf, d, K, q, diagonal);
  memset(alpha_adj, 0, K * sizeof *alpha_adj);
  memset(mu_adj, 0, K * d * sizeof *mu_adj);
  memset(icf_adj, 0, K * size * sizeof *icf_adj);
  for (long i = 0; i < n; i++) {
    for (long k = 0; k < K; k++) {
      double squares = 0, *c = cs + k * d, *z = zs + k * d;
      for (long j = 0; j < d; j++) c[j] = x[i * d + j] - mu[k * d + j];
      times(diagonal + k * d, icf + k * size + d, c, d, z);
      for (long j = 0; j < d; j++) squares += z[j] * z[j];
      beta[k] = alpha[k] + q[k] - 0.5 * squares;
    }
    double top = largest(beta, K), sum = 0;
    for (long k = 0; k < K; k++) sum += beta[k] = exp(beta[k] - top);
    value += log(sum) + top;
    for (long k = 0; k < K; k++) {
      double share = beta[k] / sum, *c = cs + k * d, *z = zs + k * d;
      const double *lower = icf + k * size + d;
      double *restrict diagonal_adj = icf_adj + k * size, *restrict lower_adj = diagonal_adj + d;
      alpha_adj[k] += share;
      for (long j = 0; j < d; j++) {
        z[j] *= share;
        back[j] = diagonal[k * d + j] * z[j];
        diagonal_adj[j] -= z[j] * c[j] * diagonal[k * d + j];
      }
      for (long j = 0; j < d; j++) {
        double dot = 0;
        for (long r = 0; r < d - j - 1; r++) {
          lower_adj[r] -= z[j + 1 + r] * c[j];
          dot += lower[r] * z[j + 1 + r];
        }
        back[j] += dot;
        lower += d - j - 1, lower_adj += d - j - 1;
      }
      for (long j = 0; j < d; j++) mu_adj[k * d + j] += back[j];
    }
  }
  double total = logsumexp(alpha, K), squared = gamma * gamma;
  for (long k = 0; k < K; k++) {
    double *restrict row = icf_adj + k * size;
    for (long j = 0; j < d; j++) row[j] += alpha_adj[k] - m + squared * diagonal[k * d + j] * diagonal[k * d + j];
    for (long j = d; j < size; j++) row[j] += squared * icf[k * size + j];
    alpha_adj[k] -= n * exp(alpha[k] - total);
  }
  value += prior(q, diagonal, icf, d, K, gamma, m) - n * total - 0.5 * n * d * log(2 * M_PI);
  free(q);
  return value;
}

/* -- the memory network ----------------------------------------------------------------------------------------------- */
static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* what one layer keeps of one step, b numbers each */
enum { X, H, C, FORGET, IN, OUT, CHANGE, TANH, KEPT };

/* one layer: from x, h and c to the new h and c; everything that the way back needs goes to `kept` */
static void layer(const double *w, const double *bias, const double *x, double *h, double *c, long b, double *restrict kept) {
  for (long j = 0; j < b; j++) {
    double f = sigmoid(x[j] * w[j] + bias[j]), i = sigmoid(h[j] * w[b + j] + bias[b + j]);
    double o = sigmoid(x[j] * w[2 * b + j] + bias[2 * b + j]), g = tanh(h[j] * w[3 * b + j] + bias[3 * b + j]);
    kept[X * b + j] = x[j], kept[H * b + j] = h[j], kept[C * b + j] = c[j];
    c[j] = c[j] * f + i * g;
    double t = tanh(c[j]);
    h[j] = o * t;
    kept[FORGET * b + j] = f, kept[IN * b + j] = i, kept[OUT * b + j] = o, kept[CHANGE * b + j] = g, kept[TANH * b + j] = t;
  }
}

/* a step through all layers; x is left in the last h, the prediction in y; gives the step's term */
static double step(const double *main, const double *extra, const double *now, const double *then, double *h, double *c,
                   long layers, long b, double *restrict first, double *restrict y, double *restrict kept, long stride) {
  for (long j = 0; j < b; j++) first[j] = now[j] * extra[j];
  const double *x = first;
  for (long k = 0; k < layers; k++) {
    layer(main + 8 * k * b, main + (8 * k + 4) * b, x, h + k * b, c + k * b, b, kept + k * stride);
    x = h + k * b;
  }
  double sum = 2, term = 0;
  for (long j = 0; j < b; j++) y[j] = x[j] * extra[b + j] + extra[2 * b + j], sum += exp(y[j]);
  sum = log(sum);
  for (long j = 0; j < b; j++) term += then[j] * (y[j] - sum);
  return term;
}

static void begin(const double *state, long layers, long b, double *h, double *c) {
  for (long k = 0; k < layers; k++) {
    memcpy(h + k * b, state + 2 * k * b, b * sizeof *h);
    memcpy(c + k * b, state + (2 * k + 1) * b, b * sizeof *c);
  }
}

double memory_network(const double *main, const double *extra, const double *state, const double *seq, long layers, long steps,
                      long b) {
  double *h = malloc((2 * layers + 2 + KEPT) * b * sizeof *h), *c = h + layers * b, *first = c + layers * b, *y = first + b;
  double total = 0;
  begin(state, layers, b, h, c);
  for (long t = 0; t < steps - 1; t++)
    total += step(main, extra, seq + t * b, seq + (t + 1) * b, h, c, layers, b, first, y, y + b, 0);
  free(h);
  return -total / (b * (steps - 1));
}

double memory_network_grad(const double *main, const double *extra, const double *state, const double *seq, long layers,
                           long steps, long b, double *restrict main_adj, double *restrict extra_adj) {
  long trips = steps - 1, per = layers * KEPT * b;
  double *h = malloc((4 * layers + 2) * b * sizeof *h), *c = h + layers * b, *ha = c + layers * b, *ca = ha + layers * b;
  double *first = ca + layers * b, *xa = first + b, *tape = malloc(trips * (per + b) * sizeof *tape), *ys = tape + trips * per;
  double total = 0, scale = -1.0 / (b * trips);
  begin(state, layers, b, h, c);
  for (long t = 0; t < trips; t++)
    total += step(main, extra, seq + t * b, seq + (t + 1) * b, h, c, layers, b, first, ys + t * b, tape + t * per, KEPT * b);
  memset(main_adj, 0, 8 * layers * b * sizeof *main_adj);
  memset(extra_adj, 0, 3 * b * sizeof *extra_adj);
  memset(ha, 0, 2 * layers * b * sizeof *ha);
  for (long t = trips - 1; t >= 0; t--) {
    const double *then = seq + (t + 1) * b, *y = ys + t * b, *last = tape + t * per + (layers - 1) * KEPT * b;
    double sum = 2, ones = 0;
    for (long j = 0; j < b; j++) xa[j] = exp(y[j]), sum += xa[j], ones += then[j];
    for (long j = 0; j < b; j++) {
      double ya = scale * (then[j] - ones * xa[j] / sum);
      extra_adj[b + j] += ya * last[OUT * b + j] * last[TANH * b + j];
      extra_adj[2 * b + j] += ya;
      xa[j] = ya * extra[b + j];
    }
    for (long k = layers - 1; k >= 0; k--) {
      const double *kept = tape + t * per + k * KEPT * b, *w = main + 8 * k * b;
      double *restrict wa = main_adj + 8 * k * b, *restrict ba = wa + 4 * b;
      for (long j = 0; j < b; j++) {
        double f = kept[FORGET * b + j], i = kept[IN * b + j], o = kept[OUT * b + j], g = kept[CHANGE * b + j];
        double th = kept[TANH * b + j], out = ha[k * b + j] + xa[j], cell = ca[k * b + j] + out * o * (1 - th * th);
        double fa = cell * kept[C * b + j] * f * (1 - f), ia = cell * g * i * (1 - i);
        double oa = out * th * o * (1 - o), ga = cell * i * (1 - g * g);
        wa[j] += fa * kept[X * b + j], ba[j] += fa;
        wa[b + j] += ia * kept[H * b + j], ba[b + j] += ia;
        wa[2 * b + j] += oa * kept[X * b + j], ba[2 * b + j] += oa;
        wa[3 * b + j] += ga * kept[H * b + j], ba[3 * b + j] += ga;
        xa[j] = fa * w[j] + oa * w[2 * b + j];
        ha[k * b + j] = ia * w[b + j] + ga * w[3 * b + j];
        ca[k * b + j] = cell * f;
      }
    }
    for (long j = 0; j < b; j++) extra_adj[j] += xa[j] * seq[t * b + j];
  }
  free(h);
  free(tape);
  return total * scale;
}
