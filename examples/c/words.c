/* Trains word vectors in several processes: skip-gram with negative samples. The C version of
 * examples/python/words.py.
 *
 *     words [NODES [EPOCHS]]
 *     ligament launch -w 0 -s 2 -- ./words
 *
 * The text is generated: each sentence has a topic, from which its words are drawn by frequency. A
 * node reads its share of the sentences and announces some sentences ahead which words they
 * contain. Negative samples are drawn by word frequency to the power of 3/4. Nodes see each
 * other's updates with a delay, so the loss agrees within 3 %, not bit for bit. */
#define _GNU_SOURCE
#include "training.h"

enum { WORDS = 600, TOPICS = 20, WIDTH = 24, SENTENCES = 4000, LENGTH = 12, WINDOW = 2 };
enum { WRONG = 20, WEIGHT = 5, AHEAD = 100, ASKED = 200, KEYS = 2 * LENGTH };

typedef int sentence[LENGTH];

typedef struct vectors {
    lig_params *params;
    lig_params_worker *worker;
    sentence *sentences;
    int *order;
} vectors;

/* Word w has topic w % TOPICS; the larger w, the rarer the word. */
static sentence *make_text(void)
{
    sentence *made = memory(SENTENCES, sizeof *made);
    double all = 0;
    uint64_t random = 2;
    for (int i = 1; i <= WORDS / TOPICS; i++)
        all += 1.0 / i;
    for (int s = 0; s < SENTENCES; s++) {
        int topic = (int)below(&random, TOPICS);
        for (int i = 0; i < LENGTH; i++) {
            double left = all * below(&random, 1000000) / 1e6;
            int nth = 1;
            for (; left > 1.0 / nth && nth < WORDS / TOPICS; nth++)
                left -= 1.0 / nth;
            made[s][i] =
                below(&random, 10) == 0 ? (int)below(&random, WORDS) : (nth - 1) * TOPICS + topic;
        }
    }
    return made;
}

static float dot(const float *a, const float *b)
{
    float sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += a[i] * b[i];
    return sum;
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* One gradient step on the product of two rows, which changes both. */
static void add_slope(float slope, int i, int j, float rows[][WIDTH], float changes[][WIDTH])
{
    for (int k = 0; k < WIDTH; k++) {
        changes[i][k] += slope * rows[j][k];
        changes[j][k] += slope * rows[i][k];
    }
}

/* Rows: the sentence's words, the same words as contexts, then the negative samples. */
static void learn(vectors *self, const sentence text, int64_t sample)
{
    float rows[KEYS + WRONG][WIDTH], changes[KEYS + WRONG][WIDTH] = {{0}};
    int64_t keys[KEYS + WRONG], tickets[2];
    for (int i = 0; i < LENGTH; i++) {
        keys[i] = text[i];
        keys[LENGTH + i] = WORDS + text[i];
    }
    need(lig_params_pull(self->worker, keys, KEYS, rows, KEYS * WIDTH, &tickets[0]));
    need(
        lig_params_pull_sample(self->worker, sample, keys + KEYS, WRONG, rows + KEYS, &tickets[1]));
    need(lig_params_wait(self->worker, tickets[0], MINUTE));
    need(lig_params_wait(self->worker, tickets[1], MINUTE));
    for (int i = 0; i < LENGTH; i++) {
        int pairs = 0;
        for (int j = i - WINDOW; j <= i + WINDOW; j++) {
            if (j < 0 || j >= LENGTH || j == i)
                continue;
            add_slope(-sigmoid(-dot(rows[i], rows[LENGTH + j])), i, LENGTH + j, rows, changes);
            pairs++;
        }
        for (int k = KEYS; k < KEYS + WRONG; k++) {
            float slope = sigmoid(dot(rows[i], rows[k])) * (float)(WEIGHT * pairs) / WRONG;
            add_slope(slope, i, k, rows, changes);
        }
    }
    need(lig_params_push(self->worker, keys, KEYS + WRONG, changes, (KEYS + WRONG) * WIDTH,
                         &tickets[0]));
    need(lig_params_finish_sample(self->worker, sample));
}

static void want(vectors *self, const sentence text, int64_t clock, int64_t *sample)
{
    int64_t keys[KEYS];
    for (int i = 0; i < LENGTH; i++) {
        keys[i] = text[i];
        keys[LENGTH + i] = WORDS + text[i];
    }
    need(lig_params_intent(self->worker, keys, KEYS, clock, 0));
    need(lig_params_prepare_sample(self->worker, WRONG, clock, 0, sample));
}

/* Trains on this node's share, in an order that every node derives from the seed. */
static void epoch(training_run *run, vectors *self, int number)
{
    int64_t samples[AHEAD + 1], clock = lig_params_current_clock(self->worker);
    int nodes = (int)run->nodes, rank = (int)run->rank,
        count = (SENTENCES - rank + nodes - 1) / nodes;
    uint64_t random = 200 + (uint64_t)number;
    for (int i = 0; i < SENTENCES; i++)
        self->order[i] = i;
    shuffle(&random, self->order, SENTENCES);
    for (int i = -AHEAD; i < count; i++) {
        int then = i + AHEAD;
        if (then < count)
            want(self, self->sentences[self->order[then * nodes + rank]], clock + then,
                 &samples[then % (AHEAD + 1)]);
        if (i < 0)
            continue;
        learn(self, self->sentences[self->order[i * nodes + rank]], samples[i % (AHEAD + 1)]);
        lig_params_advance_clock(self->worker);
        training_show(run, number + (i + 1.0) / count, 0);
    }
    need(lig_params_wait_all(self->worker, MINUTE));
    need(lig_params_flush(self->worker, MINUTE));
    need(lig_params_worker_barrier(self->worker, MINUTE));
}

static float (*all_rows(vectors *self)) [WIDTH] {
    int64_t keys[2 * WORDS], ticket;
    float (*rows)[WIDTH] = memory(2 * WORDS, sizeof *rows);
    for (int k = 0; k < 2 * WORDS; k++)
        keys[k] = k;
    need(lig_params_pull(self->worker, keys, 2 * WORDS, rows, 2 * WORDS * WIDTH, &ticket));
    need(lig_params_wait(self->worker, ticket, MINUTE));
    return rows;
}

/* The loss on the first sentences, with all words as negative samples. */
static double loss(vectors *self)
{
    float (*rows)[WIDTH] = all_rows(self);
    double sum = 0, wrong[WORDS];
    int pairs = 0;
    for (int w = 0; w < WORDS; w++) {
        wrong[w] = 0;
        for (int other = 0; other < WORDS; other++)
            wrong[w] += log1p(exp((double)dot(rows[w], rows[WORDS + other]))) / WORDS;
    }
    for (int s = 0; s < ASKED; s++)
        for (int i = 0; i < LENGTH; i++)
            for (int j = i - WINDOW; j <= i + WINDOW; j++) {
                if (j < 0 || j >= LENGTH || j == i)
                    continue;
                int word = self->sentences[s][i], beside = self->sentences[s][j];
                sum += log1p(exp(-(double)dot(rows[word], rows[WORDS + beside])));
                sum += WEIGHT * wrong[word];
                pairs++;
            }
    free(rows);
    return sum / pairs;
}

/* The share of words whose nearest neighbour has the same topic. */
static double neighbours(vectors *self)
{
    float (*rows)[WIDTH] = all_rows(self);
    int right = 0;
    for (int w = 0; w < WORDS; w++) {
        double best = -INFINITY;
        int nearest = 0;
        for (int other = 0; other < WORDS; other++) {
            double near =
                (double)dot(rows[w], rows[other]) / sqrt((double)dot(rows[other], rows[other]));
            if (other != w && near > best) {
                best = near;
                nearest = other;
            }
        }
        right += nearest % TOPICS == w % TOPICS;
    }
    free(rows);
    return (double)right / WORDS;
}

static void open_vectors(training_run *run, vectors *self)
{
    lig_params_table tables[2] = {{.name = "word", .key_count = WORDS, .length = WIDTH},
                                  {.name = "context", .key_count = WORDS, .length = WIDTH}};
    double weights[WORDS];
    lig_params_sampling sampling = {.scheme = LIG_PARAMS_POOL,
                                    .distribution = LIG_PARAMS_SAMPLE_WEIGHTS,
                                    .min = WORDS,
                                    .max = 2 * WORDS,
                                    .weights = weights,
                                    .with_replacement = 1,
                                    .seed = 3};
    self->sentences = make_text();
    self->order = memory(SENTENCES, sizeof *self->order);
    for (int w = 0; w < WORDS; w++)
        weights[w] = 1;
    for (int i = 0; i < SENTENCES * LENGTH; i++)
        weights[self->sentences[i / LENGTH][i % LENGTH]]++;
    for (int w = 0; w < WORDS; w++)
        weights[w] = pow(weights[w], 0.75);
    for (int t = 0; t < 2; t++) {
        tables[t].optimizer =
            (lig_params_optimizer){.kind = LIG_PARAMS_ADAGRAD, .lr = 0.05, .eps = 1e-8};
        tables[t].init =
            (lig_params_init){.kind = LIG_PARAMS_UNIFORM, .a = -0.2, .b = 0.2, .seed = 3};
    }
    run->options.tables = tables;
    run->options.table_count = 2;
    need(lig_params_open(&self->params, &run->options));
    need(lig_params_enable_sampling(self->params, &sampling));
    need(lig_params_worker_open(&self->worker, self->params, 0));
}

static void train(training_run *run)
{
    vectors self;
    open_vectors(run, &self);
    training_note(run, loss(&self));
    for (int number = 0; number < run->epochs; number++) {
        need(lig_params_worker_barrier(self.worker, MINUTE));
        epoch(run, &self, number);
        training_note(run, loss(&self));
    }
    double right = neighbours(&self);
    if (run->rank == 0)
        printf("words whose nearest neighbour has the same topic: %.0f%%\n", 100 * right);
    need(lig_params_worker_finalize(self.worker, MINUTE));
    lig_params_worker_close(self.worker);
    need(lig_params_shutdown(self.params, MINUTE));
    lig_params_close(self.params);
    free(self.order);
    free(self.sentences);
}

int main(int count, char **words)
{
    training_job job = {.name = "words", .train = train, .epochs = 8, .tolerance = 0.03};
    return training_main(&job, count, words);
}
