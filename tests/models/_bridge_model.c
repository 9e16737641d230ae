/* What a model that BridgeStan compiled looks like from outside, by hand:

   data { int N; array[N] real y; }
   parameters { real mu; real<lower=0> sigma; matrix[2, 3] z; }
   transformed parameters { real precision = 1 / sigma^2; }
   model { mu ~ normal(0, 2); sigma ~ exponential(1); to_vector(z) ~ normal(0, 1);
           y ~ normal(mu, sigma); }
   generated quantities { vector[N] log_lik; real y_new; }

   It rejects where mu is above 50. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM 8
#define PI 3.14159265358979323846

int bs_major_version = MAJOR, bs_minor_version = MINOR, bs_patch_version = PATCH;

typedef struct { int n; double *y; char *names[2][2]; } model;
typedef struct { unsigned state; } rng;

static void fail(char **error, const char *text) { if (error) *error = strdup(text); }

model *bs_model_construct(const char *data, unsigned seed, char **error) {
  const char *at = strstr(data, "\"y\"");
  if (!at || !(at = strchr(at, '['))) { fail(error, "variable y does not exist"); return NULL; }
  model *m = calloc(1, sizeof(model));
  m->y = malloc(sizeof(double) * (strlen(at) + 1));
  for (at++; *at && *at != ']';) {
    char *end;
    double value = strtod(at, &end);
    if (end == at) { at++; continue; }
    m->y[m->n++] = value;
    at = end;
  }
  for (int tp = 0; tp < 2; tp++) for (int gq = 0; gq < 2; gq++) {
    char *text = m->names[tp][gq] = calloc(200 + 20 * m->n, 1);
    strcpy(text, "mu,sigma,z.1.1,z.2.1,z.1.2,z.2.2,z.1.3,z.2.3");
    if (tp) strcat(text, ",precision");
    if (gq) {
      for (int i = 0; i < m->n; i++) sprintf(text + strlen(text), ",log_lik.%d", i + 1);
      strcat(text, ",y_new");
    }
  }
  return m;
}
void bs_model_destruct(model *m) {
  for (int i = 0; i < 4; i++) free(m->names[i / 2][i % 2]);
  free(m->y); free(m);
}
void bs_free_error_msg(char *error) { free(error); }
void bs_set_print_callback(void *callback, char **error) {}
const char *bs_name(const model *m) { return "by_hand_model"; }
const char *bs_model_info(const model *m) { return "by hand"; }
const char *bs_param_names(const model *m, bool tp, bool gq) { return m->names[tp][gq]; }
const char *bs_param_unc_names(const model *m) { return m->names[0][0]; }
int bs_param_unc_num(const model *m) { return NUM; }
int bs_param_num(const model *m, bool tp, bool gq) {
  return NUM + (tp ? 1 : 0) + (gq ? m->n + 1 : 0);
}
rng *bs_rng_construct(unsigned seed, char **error) {
  rng *r = malloc(sizeof(rng)); r->state = seed * 2654435761u + 1; return r;
}
void bs_rng_destruct(rng *r) { free(r); }
static double uniform(rng *r) {
  r->state = r->state * 1664525u + 1013904223u;
  return (r->state / 2 + 1.0) / 2147483650.0;
}
int bs_param_constrain(const model *m, bool tp, bool gq, const double *x, double *out,
                       rng *r, char **error) {
  memcpy(out, x, sizeof(double) * NUM);
  double sigma = out[1] = exp(x[1]);
  int at = NUM;
  if (tp) out[at++] = 1 / (sigma * sigma);
  if (gq) {
    for (int i = 0; i < m->n; i++) {
      double d = (m->y[i] - x[0]) / sigma;
      out[at++] = -0.5 * d * d - log(sigma) - 0.5 * log(2 * PI);
    }
    for (int i = 0; i < 5; i++) uniform(r);
    double length = sqrt(-2 * log(uniform(r)));
    out[at] = x[0] + sigma * length * cos(2 * PI * uniform(r));
  }
  return 0;
}
int bs_param_unconstrain(const model *m, const double *in, double *x, char **error) {
  memcpy(x, in, sizeof(double) * NUM);
  if (in[1] <= 0) { fail(error, "sigma is not positive"); return -1; }
  x[1] = log(in[1]);
  return 0;
}
int bs_log_density_gradient(const model *m, bool propto, bool jacobian, const double *x,
                            double *value, double *slope, char **error) {
  if (x[0] > 50) { fail(error, "mu is above 50"); return -1; }
  double sigma = exp(x[1]), constants = propto ? 0 : 1, log2pi = log(2 * PI);
  double total = -x[0] * x[0] / 8 - constants * (log(2) + log2pi / 2) - sigma;
  memset(slope, 0, sizeof(double) * NUM);
  slope[0] = -x[0] / 4;
  slope[1] = -sigma;
  for (int i = 2; i < NUM; i++) {
    total += -x[i] * x[i] / 2 - constants * log2pi / 2;
    slope[i] = -x[i];
  }
  for (int i = 0; i < m->n; i++) {
    double d = (m->y[i] - x[0]) / sigma;
    total += -d * d / 2 - x[1] - constants * log2pi / 2;
    slope[0] += d / sigma;
    slope[1] += d * d - 1;
  }
  if (jacobian) { total += x[1]; slope[1] += 1; }
  *value = total;
  return 0;
}
int bs_log_density(const model *m, bool propto, bool jacobian, const double *x,
                   double *value, char **error) {
  double slope[NUM];
  return bs_log_density_gradient(m, propto, jacobian, x, value, slope, error);
}
int bs_param_unconstrain_json(const model *m, const char *json, double *x, char **error) {
  fail(error, "not here"); return -1;
}
int bs_param_initialize(const model *m, const char *json, rng *r, double radius, int tries,
                        bool check, double *x, char **error) {
  fail(error, "not here"); return -1;
}
int bs_log_density_hessian(const model *m, bool propto, bool jacobian, const double *x,
                           double *value, double *slope, double *hessian, char **error) {
  fail(error, "not here"); return -1;
}
int bs_log_density_hessian_vector_product(const model *m, bool propto, bool jacobian,
                                          const double *x, const double *v, double *value,
                                          double *product, char **error) {
  fail(error, "not here"); return -1;
}
