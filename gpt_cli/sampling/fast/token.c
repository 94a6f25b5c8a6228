/* One token of one sequence, from its embedding to its logits: what Decoder computes with torch, in one call.

   Weights are float32, bfloat16, or whole numbers of 8 bits with a scale for each row; all else is float32.
   All threads run `token`; those of a loop marked `for` share its rounds and then wait for each other.
   D d_model, H heads, G groups of heads that share keys, K head size, F hidden size. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef struct {
  const void *numbers; /* [out, in] */
  const float *scales, *bias; /* [out], or NULL */
  int64_t kind, out, in;
} Matrix;

typedef struct {
  const float *weight, *bias; /* [D]; no weight: no norm */
} Norm;

typedef struct {
  Norm norm_1, norm_2;
  Matrix queries_keys_values, projection_layer, expand, contract;
  const float *head_norms; /* of queries and keys [H + G, K], or NULL */
  /* the cache [G, slots, K]; the token goes into slot `last`, and sees those from `first` on */
  float *keys, *values;
  int64_t num_slots, first, last;
  float scale, head_epsilon;
} Layer;

typedef struct {
  const Layer *layers;
  Norm final_norm;
  Matrix output_layer;
  int64_t num_layers, D, H, G, K, F, rotated_size; /* numbers of a head that positions turn */
  int64_t activation, gated, root_mean_square, pre_norm, parallel_branches, num_threads;
  float *projections, *scores, *mixed, *hidden; /* [(H + 2 G) K], [H, slots], [H K], [F] */
  float epsilon;
} Model;

enum { FLOAT32, BFLOAT16, INT8 };
enum { GELU, GELU_TANH, RELU, RELU2, SILU };
#define ROWS 16     /* of a matrix that a thread takes at once */
#define SUMS 4      /* of a row that are added up side by side, so that none waits for the one before it */
#define AHEAD 8192  /* bytes: how far ahead memory is asked for the numbers to come */
#define LINE 64     /* bytes that come from memory at once */
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Wholes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2)));
typedef int8_t Bytes __attribute__((vector_size(LANES), aligned(1)));

static inline float of_float32(const float *number) { return *number; }
static inline float of_int8(const int8_t *number) { return *number; }
static inline float of_bfloat16(const uint16_t *number) { /* the upper half of a float32 */
  uint32_t bits = (uint32_t)*number << 16;
  float found;
  memcpy(&found, &bits, 4);
  return found;
}
static inline Floats lanes_of_float32(const float *numbers) { return *(const Floats *)numbers; }
#if defined __AVX512F__ /* gcc 12 would widen the lanes one by one */
static inline Wholes wide_int8(const int8_t *from) { return (Wholes)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)); }
static inline Wholes wide_uint16(const uint16_t *from) { return (Wholes)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)); }
#elif defined __AVX2__
static inline Wholes wide_int8(const int8_t *from) { return (Wholes)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
static inline Wholes wide_uint16(const uint16_t *from) { return (Wholes)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)); }
#else
static inline Wholes wide_int8(const int8_t *from) { return __builtin_convertvector(*(const Bytes *)from, Wholes); }
static inline Wholes wide_uint16(const uint16_t *from) { return __builtin_convertvector(*(const Halves *)from, Wholes); }
#endif
static inline Floats lanes_of_int8(const int8_t *numbers) { return __builtin_convertvector(wide_int8(numbers), Floats); }
static inline Floats lanes_of_bfloat16(const uint16_t *numbers) { return (Floats)(wide_uint16(numbers) << 16); }

/* A row [in] of a matrix times x [in]. Rows come one after the other, as memory gives them fastest. */
#define PRODUCT(TYPE, NUMBERS)                                                                       \
  static float row_of_##NUMBERS(const TYPE *row, int64_t in, const float *x) {                       \
    const int64_t a_line = LINE / sizeof(TYPE);                                                      \
    Floats sums[SUMS] = {0};                                                                         \
    int64_t i = 0;                                                                                   \
    for (; i + SUMS * LANES <= in; i += SUMS * LANES) {                                              \
      for (int64_t at = 0; at < SUMS * LANES; at += a_line)                                          \
        __builtin_prefetch((const char *)(row + i + at) + AHEAD, 0, 2);                              \
      for (int sum = 0; sum < SUMS; sum++)                                                           \
        sums[sum] += lanes_of_##NUMBERS(row + i + sum * LANES) * *(const Floats *)(x + i + sum * LANES); \
    }                                                                                                \
    for (; i + LANES <= in; i += LANES) sums[0] += lanes_of_##NUMBERS(row + i) * *(const Floats *)(x + i); \
    for (int sum = 1; sum < SUMS; sum++) sums[0] += sums[sum];                                       \
    float found = 0;                                                                                 \
    for (int lane = 0; lane < LANES; lane++) found += sums[0][lane];                                 \
    for (; i < in; i++) found += of_##NUMBERS(row + i) * x[i];                                       \
    return found;                                                                                    \
  }
PRODUCT(float, float32)
PRODUCT(uint16_t, bfloat16)
PRODUCT(int8_t, int8)

/* ROWS rows of a matrix from `first` on times x [in], with scales and biases; fewer where the matrix ends. */
static void rows_times(const Matrix *m, int64_t first, const float *x, float *found) {
  const int64_t in = m->in, count = m->out - first < ROWS ? m->out - first : ROWS;
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = first + i, start = row * in;
    if (m->kind == FLOAT32)
      found[i] = row_of_float32((const float *)m->numbers + start, in, x);
    else if (m->kind == BFLOAT16)
      found[i] = row_of_bfloat16((const uint16_t *)m->numbers + start, in, x);
    else
      found[i] = row_of_int8((const int8_t *)m->numbers + start, in, x);
    found[i] = found[i] * (m->scales ? m->scales[row] : 1) + (m->bias ? m->bias[row] : 0);
  }
}

static void normalise(const Model *model, Norm norm, const float *x, float *restrict found) {
  const int64_t D = model->D;
  float mean = 0, square = 0;
  if (!model->root_mean_square) {
    for (int64_t i = 0; i < D; i++) mean += x[i];
    mean /= D;
  }
  for (int64_t i = 0; i < D; i++) square += (x[i] - mean) * (x[i] - mean);
  const float factor = 1 / sqrtf(square / D + model->epsilon);
  for (int64_t i = 0; i < D; i++) found[i] = (x[i] - mean) * factor * norm.weight[i] + (norm.bias ? norm.bias[i] : 0);
}

static void activate(int64_t kind, float *x, int64_t size) {
  if (kind == GELU)
    for (int64_t i = 0; i < size; i++) x[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
  else if (kind == GELU_TANH)
    for (int64_t i = 0; i < size; i++)
      x[i] = 0.5f * x[i] * (1 + tanhf(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
  else if (kind == SILU)
    for (int64_t i = 0; i < size; i++) x[i] = x[i] / (1 + expf(-x[i]));
  else
    for (int64_t i = 0; i < size; i++) x[i] = x[i] > 0 ? (kind == RELU ? x[i] : x[i] * x[i]) : 0;
}

/* A query or a key of head `number`: its norm, then its position, whose cosines and sines are [2, rotated_size]. */
static void turn(const Model *model, const Layer *layer, int64_t number, float *x, const float *rotation) {
  const int64_t K = model->K, size = model->rotated_size, half = size / 2;
  if (layer->head_norms) {
    float square = 0;
    for (int64_t i = 0; i < K; i++) square += x[i] * x[i];
    const float factor = 1 / sqrtf(square / K + layer->head_epsilon);
    for (int64_t i = 0; i < K; i++) x[i] *= factor * layer->head_norms[number * K + i];
  }
  if (rotation)
    for (int64_t i = 0; i < half; i++) {
      const float one = x[i], other = x[i + half];
      x[i] = one * rotation[i] - other * rotation[size + i];
      x[i + half] = other * rotation[half + i] + one * rotation[size + half + i];
    }
}

/* What a head mixes of the values that it sees [K], by a softmax of scores [last + 1 - first]. */
static void mix(const Model *model, const Layer *layer, int64_t group, const float *query, float *scores, float *mixed) {
  const int64_t K = model->K, count = layer->last + 1 - layer->first;
  const float *keys = layer->keys + (group * layer->num_slots + layer->first) * K;
  const float *values = layer->values + (group * layer->num_slots + layer->first) * K;
  float most = -INFINITY, sum = 0;
  for (int64_t slot = 0; slot < count; slot++) {
    float score = 0;
    for (int64_t i = 0; i < K; i++) score += query[i] * keys[slot * K + i];
    scores[slot] = score * layer->scale;
    most = scores[slot] > most ? scores[slot] : most;
  }
  for (int64_t slot = 0; slot < count; slot++) sum += scores[slot] = expf(scores[slot] - most);
  memset(mixed, 0, K * sizeof(float));
  for (int64_t slot = 0; slot < count; slot++) {
    const float share = scores[slot] / sum;
    for (int64_t i = 0; i < K; i++) mixed[i] += share * values[slot * K + i];
  }
}

/* x [D] is the embedding of the token, and is overwritten; logits [out of the output layer]. */
void token(const Model *model, float *x, const float *rotation, float *logits) {
  const int64_t D = model->D, H = model->H, G = model->G, K = model->K, F = model->F;
  const Matrix *output = &model->output_layer;
#pragma omp parallel num_threads(model->num_threads)
  {
    /* each thread has a copy of the residual stream, and of what a branch reads of it */
    float now[D], seen[D], found[ROWS], gate[ROWS];
    memcpy(now, x, sizeof now);
    for (int64_t number = 0; number < model->num_layers; number++) {
      const Layer *layer = &model->layers[number];
      if (model->pre_norm)
        normalise(model, layer->norm_1, now, seen);
      else
        memcpy(seen, now, sizeof seen);
#pragma omp for
      for (int64_t row = 0; row < layer->queries_keys_values.out; row += ROWS)
        rows_times(&layer->queries_keys_values, row, seen, model->projections + row);
#pragma omp for
      for (int64_t group = 0; group < G; group++) {
        float *key = model->projections + (H + group) * K;
        const int64_t slot = (group * layer->num_slots + layer->last) * K;
        turn(model, layer, H + group, key, rotation);
        memcpy(layer->keys + slot, key, K * sizeof(float));
        memcpy(layer->values + slot, key + G * K, K * sizeof(float));
        for (int64_t head = group * H / G; head < (group + 1) * H / G; head++) {
          float *query = model->projections + head * K;
          turn(model, layer, head, query, rotation);
          mix(model, layer, group, query, model->scores + head * layer->num_slots, model->mixed + head * K);
        }
      }
#pragma omp for
      for (int64_t row = 0; row < D; row += ROWS) {
        rows_times(&layer->projection_layer, row, model->mixed, found);
        for (int64_t i = 0; i < ROWS && row + i < D; i++) x[row + i] = now[row + i] + found[i];
      }
      if (model->pre_norm) {
        if (model->parallel_branches) {
          normalise(model, layer->norm_2, now, seen);
          memcpy(now, x, sizeof now);
        } else {
          memcpy(now, x, sizeof now);
          normalise(model, layer->norm_2, now, seen);
        }
      } else {
        normalise(model, layer->norm_1, x, now);
        memcpy(seen, now, sizeof seen);
      }
#pragma omp for
      for (int64_t row = 0; row < F; row += ROWS) {
        const int64_t count = F - row < ROWS ? F - row : ROWS;
        if (model->gated) {
          rows_times(&layer->expand, row, seen, gate); /* gates first, then what they let through */
          activate(model->activation, gate, count);
          rows_times(&layer->expand, F + row, seen, found);
          for (int64_t i = 0; i < count; i++) model->hidden[row + i] = gate[i] * found[i];
        } else {
          rows_times(&layer->expand, row, seen, model->hidden + row);
          activate(model->activation, model->hidden + row, count);
        }
      }
#pragma omp for
      for (int64_t row = 0; row < D; row += ROWS) {
        rows_times(&layer->contract, row, model->hidden, found);
        for (int64_t i = 0; i < ROWS && row + i < D; i++) x[row + i] = now[row + i] + found[i];
      }
      if (model->pre_norm)
        memcpy(now, x, sizeof now);
      else
        normalise(model, layer->norm_2, x, now);
    }
    normalise(model, model->final_norm, now, seen);
#pragma omp for
    for (int64_t row = 0; row < output->out; row += ROWS) rows_times(output, row, seen, logits + row);
  }
}

/* A few rows times a matrix, which is read once: x [num_rows, in] -> found [num_rows, out]. */
void product(const Matrix *m, const float *x, float *found, int64_t num_rows, int64_t num_threads) {
  const int64_t out = m->out, in = m->in;
#pragma omp parallel for num_threads(num_threads)
  for (int64_t row = 0; row < out; row += ROWS)
    for (int64_t n = 0; n < num_rows; n++) rows_times(m, row, x + n * in, found + n * out + row);
}
