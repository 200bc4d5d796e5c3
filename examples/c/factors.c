/* Factorises a matrix in several processes, with the same bits as in one: the C version of
 * examples/python/factors.py.
 *
 *     factors [NODES [EPOCHS]]                     one process, then NODES nodes, then one more
 *     ligament launch -w 0 -s 2 -- ./factors
 *
 * Users and items are divided into four blocks. In each of four turns, every block of users is
 * paired with one block of items, and no two pairs of a turn share a user or an item, so the
 * factors do not depend on which node processes a pair. Between turns the rows of the items are
 * relocated to the node that uses them next. Half-way through, the factors are saved to the store
 * factors-models and loaded by one more node. */
#define _GNU_SOURCE
#include "training.h"

enum { USERS = 600, ITEMS = 400, HIDDEN = 4, WIDTH = 8, BLOCKS = 4, CELLS = 40000 };

typedef struct cell {
    int user, item;
    float value;
} cell;

/* Some cells of a noisy low-rank matrix. */
static cell *make_cells(void)
{
    cell *cells = memory(CELLS, sizeof *cells);
    float (*users)[HIDDEN] = memory(USERS, sizeof *users);
    float (*items)[HIDDEN] = memory(ITEMS, sizeof *items);
    uint64_t random = 5;
    for (int i = 0; i < USERS * HIDDEN; i++)
        users[i / HIDDEN][i % HIDDEN] = normal(&random);
    for (int i = 0; i < ITEMS * HIDDEN; i++)
        items[i / HIDDEN][i % HIDDEN] = normal(&random);
    for (int c = 0; c < CELLS; c++) {
        int user = (int)below(&random, USERS), item = (int)below(&random, ITEMS);
        cells[c] = (cell){user, item, 0.1f * normal(&random)};
        for (int h = 0; h < HIDDEN; h++)
            cells[c].value += users[user][h] * items[item][h];
    }
    free(items);
    free(users);
    return cells;
}

/* Rows are only relocated, never replicated: a replica sums its pushes before it sends them on, and
 * a different order of sums changes the last bits. */
static lig_params *open_factors(training_run *run)
{
    lig_params_table tables[2] = {{.name = "user", .key_count = USERS, .length = WIDTH},
                                  {.name = "item", .key_count = ITEMS, .length = WIDTH}};
    lig_params *params;
    for (int t = 0; t < 2; t++) {
        tables[t].optimizer =
            (lig_params_optimizer){.kind = LIG_PARAMS_ADAGRAD, .lr = 0.2, .eps = 1e-8};
        tables[t].init = (lig_params_init){.kind = LIG_PARAMS_NORMAL, .b = 0.5, .seed = 9};
    }
    run->options.tables = tables;
    run->options.table_count = 2;
    run->options.techniques = LIG_PARAMS_RELOCATION_ONLY;
    need(lig_params_open(&params, &run->options));
    return params;
}

static void step(lig_params_worker *worker, const cell *one)
{
    int64_t keys[2] = {one->user, USERS + one->item}, ticket;
    float rows[2][WIDTH], change[2][WIDTH], error = -one->value;
    need(lig_params_pull(worker, keys, 2, rows, 2 * WIDTH, &ticket));
    need(lig_params_wait(worker, ticket, MINUTE));
    for (int i = 0; i < WIDTH; i++)
        error += rows[0][i] * rows[1][i];
    for (int i = 0; i < WIDTH; i++) {
        change[0][i] = error * rows[1][i];
        change[1][i] = error * rows[0][i];
    }
    need(lig_params_push(worker, keys, 2, change, 2 * WIDTH, &ticket));
}

/* The cells of one block of users and one of items; the clock advances once per block. */
static void meet(lig_params_worker *worker, const cell *cells, int user_block, int item_block)
{
    int64_t keys[USERS + ITEMS];
    size_t count = 0;
    for (int u = user_block; u < USERS; u += BLOCKS)
        keys[count++] = u;
    for (int i = item_block; i < ITEMS; i += BLOCKS)
        keys[count++] = USERS + i;
    need(lig_params_intent(worker, keys, count, lig_params_current_clock(worker), 0));
    for (int c = 0; c < CELLS; c++)
        if (cells[c].user % BLOCKS == user_block && cells[c].item % BLOCKS == item_block)
            step(worker, &cells[c]);
    lig_params_advance_clock(worker);
}

static double loss(lig_params_worker *worker, const cell *cells)
{
    int64_t keys[USERS + ITEMS], ticket;
    float (*rows)[WIDTH] = memory(USERS + ITEMS, sizeof *rows);
    double sum = 0;
    for (int k = 0; k < USERS + ITEMS; k++)
        keys[k] = k;
    need(lig_params_pull(worker, keys, USERS + ITEMS, rows, (USERS + ITEMS) * WIDTH, &ticket));
    need(lig_params_wait(worker, ticket, MINUTE));
    for (int c = 0; c < CELLS; c++) {
        double error = -(double)cells[c].value;
        for (int i = 0; i < WIDTH; i++)
            error += (double)rows[cells[c].user][i] * (double)rows[USERS + cells[c].item][i];
        sum += error * error;
    }
    free(rows);
    return sqrt(sum / CELLS);
}

static void epoch(training_run *run, lig_params_worker *worker, const cell *cells, int number)
{
    for (int turn = 0; turn < BLOCKS; turn++) {
        for (int block = (int)run->rank; block < BLOCKS; block += (int)run->nodes)
            meet(worker, cells, block, (block + turn) % BLOCKS);
        need(lig_params_wait_all(worker, MINUTE));
        need(lig_params_worker_barrier(worker, MINUTE));
        training_show(run, number + (turn + 1.0) / BLOCKS, 0);
    }
}

static void train(training_run *run)
{
    cell *cells = make_cells();
    lig_params *params = open_factors(run);
    lig_params_worker *worker;
    need(lig_params_worker_open(&worker, params, 0));
    if (run->from > 0)
        need(lig_params_load(params, "factors-models", "half-way", MINUTE));
    else
        training_note(run, loss(worker, cells));
    need(lig_params_worker_barrier(worker, MINUTE));
    for (int number = run->from; number < run->to; number++) {
        epoch(run, worker, cells, number);
        training_note(run, loss(worker, cells));
        need(lig_params_worker_barrier(worker, MINUTE));
    }
    if (run->to < run->epochs)
        need(lig_params_save(params, "factors-models", "half-way", MINUTE));
    need(lig_params_worker_finalize(worker, MINUTE));
    lig_params_worker_close(worker);
    need(lig_params_shutdown(params, MINUTE));
    lig_params_close(params);
    free(cells);
}

int main(int count, char **words)
{
    training_job job = {.name = "factors", .train = train, .epochs = 10, .resume = 1};
    return training_main(&job, count, words);
}
