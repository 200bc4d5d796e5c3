/* A knowledge graph learned by several processes: ComplEx, with negative samples. The twin of
 * examples/python/kge.py.
 *
 *     kge [NODES [EPOCHS]]
 *     ligament launch -w 0 -s 2 -- ./kge
 *
 * Facts (subject, relation, object) are made by a hidden model; a tenth of them is held back. Each
 * node takes its share of the rest and says some facts ahead which rows it will touch; objects
 * that are wrong are drawn as early, and come with them. Updates race, but nobody runs
 * far ahead: the nodes meet every few facts. The loss is the same within 5 %. */
#define _GNU_SOURCE
#include "training.h"

enum { ENTITIES = 1000, RELATIONS = 4, PARTS = 32, WIDTH = 2 * PARTS, HIDDEN = 4, BEST = 16 };
enum { FACTS = ENTITIES * RELATIONS * BEST, ASKED = FACTS / 10, WRONG = 5, AHEAD = 200 };
enum { MEET = 500 }; /* facts */

#define LR 0.2 /* of the first epoch; it becomes less with each */

typedef struct fact {
    int subject, relation, object;
} fact;

typedef struct graph {
    lig_params *params;
    lig_params_worker *worker;
    fact *facts; /* ASKED that are held back, then those to learn */
    int *order;
} graph;

/* --- the facts --- */

/* A row: real parts, then imaginary ones. */
static void multiply(const float *a, const float *b, float *out, int parts)
{
    for (int i = 0; i < parts; i++) {
        out[i] = a[i] * b[i] - a[parts + i] * b[parts + i];
        out[parts + i] = a[i] * b[parts + i] + a[parts + i] * b[i];
    }
}

static void multiply_conjugate(const float *a, const float *b, float *out, int parts)
{
    for (int i = 0; i < parts; i++) {
        out[i] = a[i] * b[i] + a[parts + i] * b[parts + i];
        out[parts + i] = a[parts + i] * b[i] - a[i] * b[parts + i];
    }
}

static float dot(const float *a, const float *b, int width)
{
    float sum = 0;
    for (int i = 0; i < width; i++)
        sum += a[i] * b[i];
    return sum;
}

/* The best objects of a question, best first. */
static void find_best(const float *question, const float *entities, int best[BEST])
{
    float scores[BEST];
    for (int b = 0; b < BEST; b++)
        scores[b] = -INFINITY;
    for (int e = 0; e < ENTITIES; e++) {
        float score = dot(question, entities + (ptrdiff_t)e * 2 * HIDDEN, 2 * HIDDEN);
        int b = BEST;
        for (; b > 0 && score > scores[b - 1]; b--)
            if (b < BEST) {
                scores[b] = scores[b - 1];
                best[b] = best[b - 1];
            }
        if (b < BEST) {
            scores[b] = score;
            best[b] = e;
        }
    }
}

static fact *make_facts(void)
{
    fact *facts = memory(FACTS, sizeof *facts), *made = memory(FACTS, sizeof *made);
    float *hidden = memory((ENTITIES + RELATIONS) * 2 * HIDDEN, sizeof *hidden);
    int *order = memory(FACTS, sizeof *order), count = 0;
    uint64_t random = 1;
    for (int i = 0; i < (ENTITIES + RELATIONS) * 2 * HIDDEN; i++)
        hidden[i] = normal(&random);
    for (int s = 0; s < ENTITIES; s++)
        for (int r = 0; r < RELATIONS; r++) {
            float question[2 * HIDDEN];
            int best[BEST];
            multiply(hidden + (ptrdiff_t)s * 2 * HIDDEN,
                     hidden + (ptrdiff_t)(ENTITIES + r) * 2 * HIDDEN, question, HIDDEN);
            find_best(question, hidden, best);
            for (int b = 0; b < BEST; b++, count++) {
                made[count] = (fact){s, r, best[b]};
                order[count] = count;
            }
        }
    shuffle(&random, order, FACTS);
    for (int i = 0; i < FACTS; i++)
        facts[i] = made[order[i]];
    free(order);
    free(hidden);
    free(made);
    return facts;
}

/* --- learning --- */

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Gradients of softplus(-score of the right object) + the mean of softplus(score of a wrong one).
 * Rows: subject, relation, object, then the wrong ones. */
static void gradients(float rows[][WIDTH], float out[][WIDTH])
{
    float question[WIDTH], of_question[WIDTH] = {0};
    multiply(rows[0], rows[1], question, PARTS);
    for (int k = 2; k < 3 + WRONG; k++) {
        float score = dot(question, rows[k], WIDTH);
        float slope = k == 2 ? -sigmoid(-score) : sigmoid(score) / WRONG;
        for (int i = 0; i < WIDTH; i++) {
            of_question[i] += slope * rows[k][i];
            out[k][i] = slope * question[i];
        }
    }
    multiply_conjugate(of_question, rows[1], out[0], PARTS);
    multiply_conjugate(of_question, rows[0], out[1], PARTS);
}

static void learn(graph *self, const fact *one, int64_t sample)
{
    float rows[3 + WRONG][WIDTH], changes[3 + WRONG][WIDTH];
    int64_t keys[3 + WRONG] = {one->subject, ENTITIES + one->relation, one->object}, tickets[2];
    need(lig_params_pull(self->worker, keys, 3, rows, 3 * WIDTH, &tickets[0]));
    need(lig_params_pull_sample(self->worker, sample, keys + 3, WRONG, rows + 3, &tickets[1]));
    need(lig_params_wait(self->worker, tickets[0], MINUTE));
    need(lig_params_wait(self->worker, tickets[1], MINUTE));
    gradients(rows, changes);
    need(lig_params_push(self->worker, keys, 3 + WRONG, changes, (3 + WRONG) * WIDTH, &tickets[0]));
    need(lig_params_finish_sample(self->worker, sample));
}

/* All nodes are here, and all they have pushed is in every copy. */
static void meet(graph *self)
{
    need(lig_params_flush(self->worker, MINUTE));
    need(lig_params_worker_barrier(self->worker, MINUTE));
}

/* This node's share, in an order that all nodes come to by themselves. */
static void epoch(training_run *run, graph *self, int number)
{
    int64_t samples[AHEAD + 1], clock = lig_params_current_clock(self->worker);
    int count = (FACTS - ASKED - (int)run->rank + (int)run->nodes - 1) / (int)run->nodes;
    uint64_t random = 100 + (uint64_t)number;
    for (int i = 0; i < FACTS - ASKED; i++)
        self->order[i] = ASKED + i;
    shuffle(&random, self->order, FACTS - ASKED);
    for (int i = -AHEAD; i < count; i++) {
        int then = i + AHEAD;
        if (then < count) {
            const fact *one = &self->facts[self->order[then * (int)run->nodes + (int)run->rank]];
            int64_t keys[3] = {one->subject, ENTITIES + one->relation, one->object};
            need(lig_params_intent(self->worker, keys, 3, clock + then, 0));
            need(lig_params_prepare_sample(self->worker, WRONG, clock + then, 0,
                                           &samples[then % (AHEAD + 1)]));
        }
        if (i < 0)
            continue;
        learn(self, &self->facts[self->order[i * (int)run->nodes + (int)run->rank]],
              samples[i % (AHEAD + 1)]);
        lig_params_advance_clock(self->worker);
        if (i % MEET == MEET - 1 && i < (FACTS - ASKED) / (int)run->nodes)
            meet(self);
        training_show(run, number + (i + 1.0) / count, 0);
    }
    meet(self);
}

/* On some facts that were learned, against every 50th entity; *found is how often, on facts that
 * were held back, the right object is among the twenty best of all. */
static double loss(graph *self, double *found)
{
    int64_t keys[ENTITIES + RELATIONS], ticket;
    float (*rows)[WIDTH] = memory(ENTITIES + RELATIONS, sizeof *rows);
    double sum = 0, hits = 0;
    for (int k = 0; k < ENTITIES + RELATIONS; k++)
        keys[k] = k;
    need(lig_params_pull(self->worker, keys, ENTITIES + RELATIONS, rows,
                         (ENTITIES + RELATIONS) * WIDTH, &ticket));
    need(lig_params_wait(self->worker, ticket, MINUTE));
    for (int a = 0; a < ASKED; a++) {
        const fact *one = &self->facts[found ? a : ASKED + a];
        float question[WIDTH];
        multiply(rows[one->subject], rows[ENTITIES + one->relation], question, PARTS);
        float right = dot(question, rows[one->object], WIDTH);
        int better = 0;
        sum += log1p(exp(-(double)right));
        for (int e = 0; e < ENTITIES; e += found ? 1 : 50) {
            float score = dot(question, rows[e], WIDTH);
            sum += log1p(exp((double)score)) / (ENTITIES / 50.0);
            better += score > right;
        }
        hits += better < 20;
    }
    if (found)
        *found = hits / ASKED;
    free(rows);
    return sum / ASKED;
}

static void open_graph(training_run *run, graph *self)
{
    lig_params_table tables[2] = {{.name = "entity", .key_count = ENTITIES, .length = WIDTH},
                                  {.name = "relation", .key_count = RELATIONS, .length = WIDTH}};
    lig_params_sampling sampling = {
        .scheme = LIG_PARAMS_PRELOC, .max = ENTITIES, .with_replacement = 1, .seed = 1 + run->rank};
    for (int t = 0; t < 2; t++) {
        tables[t].optimizer =
            (lig_params_optimizer){.kind = LIG_PARAMS_ADAGRAD, .lr = LR, .eps = 1e-8};
        tables[t].init = (lig_params_init){.kind = LIG_PARAMS_NORMAL, .b = 0.05, .seed = 7};
    }
    run->options.tables = tables;
    run->options.table_count = 2;
    need(lig_params_open(&self->params, &run->options));
    need(lig_params_enable_sampling(self->params, &sampling));
    need(lig_params_worker_open(&self->worker, self->params, 0));
    self->facts = make_facts();
    self->order = memory(FACTS, sizeof *self->order);
}

static void train(training_run *run)
{
    graph self;
    double found;
    open_graph(run, &self);
    training_note(run, loss(&self, NULL));
    for (int number = 0; number < run->epochs; number++) {
        need(lig_params_set_lr(self.params, NULL, LR * (1 - (double)number / run->epochs)));
        need(lig_params_worker_barrier(self.worker, MINUTE));
        epoch(run, &self, number);
        training_note(run, loss(&self, NULL));
    }
    loss(&self, &found);
    if (run->rank == 0)
        printf("a fact that was held back is among the twenty best of 1000: %.0f%%\n", 100 * found);
    need(lig_params_worker_finalize(self.worker, MINUTE));
    lig_params_worker_close(self.worker);
    need(lig_params_shutdown(self.params, MINUTE));
    lig_params_close(self.params);
    free(self.order);
    free(self.facts);
}

int main(int count, char **words)
{
    training_job job = {.name = "kge", .train = train, .epochs = 10, .tolerance = 0.1};
    return training_main(&job, count, words);
}
