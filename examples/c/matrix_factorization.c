/* AdaPM's matrix factorization: the same update rule, data files and options, over any number of
 * nodes and threads.
 *
 *     matrix_factorization --dataset FOLDER --rank 8 --epochs 20 [--nodes 2] [OPTION VALUE...]
 *     ligament launch -w 0 -s 2 -- ./matrix_factorization --dataset FOLDER --rank 8 --epochs 20
 *     matrix_factorization                          generates data, trains on 1 and on 2 nodes
 *
 * A row of the parameters is a factor and its AdaGrad sums, of `rank` numbers each: those of the
 * matrix's rows come first, then those of its columns, then one row for each worker's losses. */
#define _GNU_SOURCE
#include "mf_data.h"
#include "mf_options.h"

#include <pthread.h>

#define ADAGRAD_EPS 0.000001
enum { DSGD, COLUMNWISE, PLAIN_SGD };

typedef struct mf_options {
    const char *dataset, *techniques;
    long rank, epochs, nodes, threads, algorithm, seed;
    long bold_driver, intent_rows, intent_columns, wor_blocks, wor_points, sync_push, init;
    double lambda, eps, increase, decrease;
} mf_options;

typedef struct mf_job { /* of one node; shared by its workers, who only read it */
    mf_options options;
    mf_matrix *train, *test;
    training_run *run;
    lig_params *params;
    int workers;                      /* of all nodes */
    int row_block, column_block;      /* rows and columns per worker */
    int64_t first_column, first_loss; /* keys */
} mf_job;

typedef struct mf_worker {
    mf_job *job;
    lig_params_worker *kv;
    int id, thread;      /* among all workers; on its node */
    int first_row, rows; /* of the matrix */
    int *order;          /* its points; those of a block are consecutive */
    int *starts;         /* of its blocks: of columns, or of one column each */
    int count, blocks;
    double eps;
    uint64_t random;
} mf_worker;

static int ceiling(long count, long parts)
{
    return (int)((count + parts - 1) / parts);
}

/* --- the update rule --- */

/* `w` and `h` are rows of the parameters; the changes are pushed, that is, added. */
static void mf_update(int rank, const double *w, const double *h, double *w_change,
                      double *h_change, const double numbers[5])
{
    double value = numbers[0], w_share = numbers[1], h_share = numbers[2], lambda = numbers[3],
           eps = numbers[4], product = 0;
    for (int z = 0; z < rank; z++)
        product += h[z] * w[z];
    double slope = -2. * (value - product), decay = 2. * lambda;
    for (int z = 0; z < rank; z++) {
        double w_step = -(slope * h[z] + decay * w[z] * w_share);
        double h_step = -(slope * w[z] + decay * h[z] * h_share);
        w_change[rank + z] = w_step * w_step;
        h_change[rank + z] = h_step * h_step;
        w_change[z] = eps * w_step / sqrt(w[rank + z] + w_change[rank + z] + ADAGRAD_EPS);
        h_change[z] = eps * h_step / sqrt(h[rank + z] + h_change[rank + z] + ADAGRAD_EPS);
    }
}

static void point_numbers(const mf_worker *self, const mf_point *point, double numbers[5])
{
    const mf_matrix *train = self->job->train;
    numbers[0] = point->value;
    numbers[1] = 1. / train->in_row[point->row];
    numbers[2] = 1. / train->in_column[point->column];
    numbers[3] = self->job->options.lambda;
    numbers[4] = self->eps;
}

static void train_point(mf_worker *self, int at, double *rows, double *changes)
{
    const mf_job *job = self->job;
    const mf_point *point = &job->train->points[self->order[at]];
    int rank = (int)job->options.rank, width = 2 * rank;
    int64_t keys[2] = {point->row, job->first_column + point->column}, ticket;
    double numbers[5];
    need(lig_params_pull(self->kv, keys, 2, rows, 2 * (uint64_t)width, &ticket));
    need(lig_params_wait(self->kv, ticket, MINUTE));
    point_numbers(self, point, numbers);
    mf_update(rank, rows, rows + width, changes, changes + width, numbers);
    need(lig_params_push(self->kv, keys, 2, changes, 2 * (uint64_t)width, &ticket));
    if (job->options.sync_push)
        need(lig_params_wait(self->kv, ticket, MINUTE));
}

/* --- assignment of points to workers --- */

typedef struct sorting {
    const mf_point *points;
    int block; /* columns of a block: blocks are sorted by rows; 0: one column after another */
} sorting;

static int by_place(const void *left, const void *right, void *context)
{
    const sorting *how = context;
    const mf_point *a = &how->points[*(const int *)left], *b = &how->points[*(const int *)right];
    int one = how->block ? a->column / how->block : a->column;
    int other = how->block ? b->column / how->block : b->column;
    if (one != other)
        return one < other ? -1 : 1;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->column < b->column ? -1 : a->column > b->column;
}

static void find_starts(mf_worker *self, int block)
{
    const mf_matrix *train = self->job->train;
    int at = 0;
    self->blocks = ceiling(train->columns, block);
    self->starts = memory((size_t)self->blocks + 1, sizeof *self->starts);
    for (int b = 0; b <= self->blocks; b++) {
        while (at < self->count && train->points[self->order[at]].column / block < b)
            at++;
        self->starts[b] = b == self->blocks ? self->count : at;
    }
}

/* Rows are divided among the workers; columnwise, among the nodes, and the points of a node, by
 * column, among its threads. */
static void take_points(mf_worker *self)
{
    const mf_job *job = self->job;
    const mf_matrix *train = job->train;
    int by_column = job->options.algorithm == COLUMNWISE;
    self->rows = by_column ? ceiling(train->rows, job->run->nodes) : job->row_block;
    self->first_row = self->rows * (by_column ? (int)job->run->rank : self->id);
    self->order = memory((size_t)train->count + 1, sizeof *self->order);
    for (long i = 0; i < train->count; i++)
        if (train->points[i].row >= self->first_row &&
            train->points[i].row < self->first_row + self->rows)
            self->order[self->count++] = (int)i;
    sorting how = {train->points, job->options.algorithm == DSGD ? job->column_block : 0};
    qsort_r(self->order, (size_t)self->count, sizeof *self->order, by_place, &how);
    if (by_column) {
        int share = ceiling(self->count, job->options.threads), first = share * self->thread;
        int end = first + share < self->count ? first + share : self->count;
        self->count = end > first ? end - first : 0;
        memmove(self->order, self->order + first, (size_t)self->count * sizeof *self->order);
    }
    if (self->first_row + self->rows > train->rows)
        self->rows = self->first_row < train->rows ? train->rows - self->first_row : 0;
    find_starts(self, job->options.algorithm == DSGD ? job->column_block : 1);
}

/* --- losses --- */

static double squares(const double *rows, int count, int rank)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        for (int z = 0; z < rank; z++)
            sum += rows[i * 2 * rank + z] * rows[i * 2 * rank + z];
    return sum;
}

static double *pull_range(mf_worker *self, int64_t first, int count)
{
    size_t width = 2 * (size_t)self->job->options.rank;
    int64_t ticket, *keys = memory((size_t)count + 1, sizeof *keys);
    double *rows = memory((size_t)count * width + 1, sizeof *rows);
    for (int i = 0; i < count; i++)
        keys[i] = first + i;
    need(lig_params_pull(self->kv, keys, (size_t)count, rows, (size_t)count * width, &ticket));
    need(lig_params_wait(self->kv, ticket, MINUTE));
    free(keys);
    return rows;
}

static double squared_error(const mf_worker *self, const mf_matrix *matrix, const double *w,
                            const double *h)
{
    int rank = (int)self->job->options.rank;
    double sum = 0;
    for (long i = 0; i < matrix->count; i++) {
        const mf_point *point = &matrix->points[i];
        double error = point->value;
        if (point->row < self->first_row || point->row >= self->first_row + self->rows)
            continue;
        for (int z = 0; z < rank; z++)
            error -=
                w[(point->row - self->first_row) * 2 * rank + z] * h[point->column * 2 * rank + z];
        sum += error * error;
    }
    return sum;
}

/* This worker's part of the training error, its regularization and the test error. If threads of
 * one node have the same rows (columnwise), only the first counts them. */
static void own_losses(mf_worker *self, double *losses)
{
    const mf_job *job = self->job;
    int rank = (int)job->options.rank, shared = job->options.algorithm == COLUMNWISE;
    double *w = pull_range(self, self->first_row, self->rows);
    double *h = pull_range(self, job->first_column, job->train->columns);
    int first = self->id * job->column_block, count = job->column_block;
    if (first + count > job->train->columns)
        count = first < job->train->columns ? job->train->columns - first : 0;
    if (!shared || self->thread == 0) {
        losses[0] = squared_error(self, job->train, w, h);
        losses[1] = job->options.lambda * squares(w, self->rows, rank);
        losses[2] = squared_error(self, job->test, w, h);
    }
    losses[1] += job->options.lambda * squares(h + (size_t)first * 2 * (size_t)rank, count, rank);
    free(w);
    free(h);
}

/* Each worker has a row for its part; all sum the rows in the same order. */
static double find_loss(mf_worker *self, int epoch)
{
    const mf_job *job = self->job;
    size_t width = 2 * (size_t)job->options.rank;
    double sums[3] = {0}, *own = memory(width, sizeof *own);
    int64_t key = job->first_loss + self->id, ticket;
    need(lig_params_flush(self->kv, MINUTE));
    need(lig_params_worker_barrier(self->kv, MINUTE));
    own_losses(self, own);
    need(lig_params_set(self->kv, &key, 1, own, width, &ticket));
    need(lig_params_wait(self->kv, ticket, MINUTE));
    need(lig_params_worker_barrier(self->kv, MINUTE));
    double *all = pull_range(self, job->first_loss, job->workers);
    for (int i = 0; i < job->workers; i++)
        for (int k = 0; k < 3; k++)
            sums[k] += all[(size_t)i * width + (size_t)k];
    double points = (double)job->train->count, loss = (sums[0] + sums[1]) / points;
    if (self->id == 0) {
        printf("(Ep.%d) Train loss: %.12g (%.12g + %.12g)\n", epoch, loss, sums[0] / points,
               sums[1] / points);
        printf("(Ep.%d) Test loss:  %.12g\n", epoch, sums[2] / (double)job->test->count);
        fflush(stdout);
    }
    if (self->thread == 0)
        training_note(job->run, loss);
    free(all);
    free(own);
    return loss;
}

/* --- training --- */

static void intend(mf_worker *self, int64_t first, int count, int64_t start, int64_t end)
{
    int64_t *keys = memory((size_t)count + 1, sizeof *keys);
    for (int i = 0; i < count; i++)
        keys[i] = first + i;
    need(lig_params_intent(self->kv, keys, (size_t)count, start, end));
    free(keys);
}

/* In each turn, no two workers have the same block of columns. All workers draw the same turns.
 */
static void epoch_dsgd(mf_worker *self, int epoch, double *rows, double *changes)
{
    const mf_job *job = self->job;
    int turns = job->workers, *row = memory((size_t)turns, 2 * sizeof *row), *column = row + turns;
    uint64_t random = (uint64_t)epoch;
    for (int i = 0; i < turns; i++)
        row[i] = column[i] = i;
    if (job->options.wor_blocks) {
        shuffle(&random, row, turns);
        shuffle(&random, column, turns);
    }
    for (int turn = 0; turn < turns; turn++) {
        int block = (row[turn] + column[self->id]) % turns, first = block * job->column_block;
        int end = first + job->column_block, columns = job->train->columns;
        end = end < columns ? end : columns;
        if (job->options.intent_columns && first < end)
            intend(self, job->first_column + first, end - first, lig_params_current_clock(self->kv),
                   0);
        if (block < self->blocks) {
            int *order = self->order + self->starts[block];
            int count = self->starts[block + 1] - self->starts[block];
            if (job->options.wor_points)
                shuffle(&self->random, order, count);
            for (int at = self->starts[block]; at < self->starts[block + 1]; at++)
                train_point(self, at, rows, changes);
        }
        lig_params_advance_clock(self->kv);
        need(lig_params_wait_all(self->kv, MINUTE));
        need(lig_params_worker_barrier(self->kv, MINUTE));
    }
    free(row);
}

static int block_points(const mf_worker *self, int block)
{
    return self->starts[block + 1] - self->starts[block];
}

/* One column after another; the intent for its row begins some columns earlier. */
static void epoch_columnwise(mf_worker *self, double *rows, double *changes)
{
    const mf_job *job = self->job;
    int *columns = memory((size_t)self->blocks, sizeof *columns), count = 0, ahead = 0;
    int64_t clock = lig_params_current_clock(self->kv);
    for (int b = 0; b < self->blocks; b++)
        if (block_points(self, b) > 0)
            columns[count++] = b;
    if (job->options.wor_blocks)
        shuffle(&self->random, columns, count);
    for (int c = 0; c < count; c++) {
        int block = columns[c];
        for (; ahead < count && ahead < c + job->options.intent_columns; ahead++) {
            int points = block_points(self, columns[ahead]);
            intend(self, job->first_column + columns[ahead], 1, clock, clock + points);
            clock += points;
        }
        if (job->options.wor_points)
            shuffle(&self->random, self->order + self->starts[block], block_points(self, block));
        for (int at = self->starts[block]; at < self->starts[block + 1]; at++) {
            train_point(self, at, rows, changes);
            lig_params_advance_clock(self->kv);
        }
    }
    need(lig_params_worker_barrier(self->kv, MINUTE));
    free(columns);
}

/* In any order; the intent for a column's row begins some points earlier. */
static void epoch_plain(mf_worker *self, double *rows, double *changes)
{
    const mf_job *job = self->job;
    int64_t clock = lig_params_current_clock(self->kv);
    int ahead = 0;
    if (job->options.wor_points)
        shuffle(&self->random, self->order, self->count);
    for (int at = 0; at < self->count; at++) {
        for (; ahead < self->count && ahead < at + job->options.intent_columns; ahead++) {
            int column = job->train->points[self->order[ahead]].column;
            intend(self, job->first_column + column, 1, clock + ahead, 0);
        }
        train_point(self, at, rows, changes);
        lig_params_advance_clock(self->kv);
    }
    need(lig_params_worker_barrier(self->kv, MINUTE));
}

/* Factors of `count` rows from `first` on: read from a file, or random. */
static void push_factors(mf_worker *self, int64_t first, int count, const double *read,
                         uint64_t seed)
{
    int rank = (int)self->job->options.rank;
    size_t width = 2 * (size_t)rank;
    double *row = memory(width, sizeof *row), deviation = 1 / sqrt(sqrt((double)rank));
    int64_t ticket;
    for (int i = 0; i < count; i++) {
        int64_t key = first + i;
        for (int z = 0; z < rank; z++)
            row[z] = read ? read[(size_t)i * (size_t)rank + (size_t)z]
                          : deviation * (double)normal(&seed);
        need(lig_params_push(self->kv, &key, 1, row, width, &ticket));
    }
    need(lig_params_wait_all(self->kv, MINUTE));
    free(row);
}

/* A column of H.mma is the factor of a column, a row of W.mma that of a row. */
static double *read_columns(const mf_job *job)
{
    int rank = (int)job->options.rank, columns = job->train->columns;
    double *read = mf_read_dense(job->options.dataset, "H.mma", rank, columns);
    double *turned = memory((size_t)rank * (size_t)columns, sizeof *turned);
    for (int c = 0; c < columns; c++)
        for (int z = 0; z < rank; z++)
            turned[c * rank + z] = read[z * columns + c];
    free(read);
    return turned;
}

static void set_up(mf_worker *self)
{
    const mf_job *job = self->job;
    int from_files = job->options.init == 1;
    uint64_t seed = (uint64_t)job->options.seed;
    double *read = NULL;
    need(lig_params_begin_setup(self->kv, MINUTE));
    if (self->id == 0) {
        read = from_files ? read_columns(job) : NULL;
        push_factors(self, job->first_column, job->train->columns, read, seed + 133273);
        free(read);
    }
    if (self->id == job->workers - 1) {
        read = from_files ? mf_read_dense(job->options.dataset, "W.mma", job->train->rows,
                                          (int)job->options.rank)
                          : NULL;
        push_factors(self, 0, job->train->rows, read, seed);
        free(read);
    }
    need(lig_params_end_setup(self->kv, MINUTE));
    if (job->options.intent_rows)
        intend(self, self->first_row, self->rows, 0, LIG_PARAMS_FOREVER_CLOCK);
}

static void *work(void *context)
{
    mf_worker *self = context;
    mf_job *job = self->job;
    size_t width = 4 * (size_t)job->options.rank;
    double *rows = memory(2 * width, sizeof *rows), *changes = rows + width;
    need(lig_params_worker_open(&self->kv, job->params, (uint32_t)self->thread));
    take_points(self);
    set_up(self);
    double before = find_loss(self, 0);
    for (int epoch = 1; epoch <= job->options.epochs; epoch++) {
        switch (job->options.algorithm) {
        case DSGD: epoch_dsgd(self, epoch, rows, changes); break;
        case COLUMNWISE: epoch_columnwise(self, rows, changes); break;
        default: epoch_plain(self, rows, changes); break;
        }
        double loss = find_loss(self, epoch);
        if (job->options.bold_driver)
            self->eps *= loss < before ? job->options.increase : job->options.decrease;
        before = loss;
    }
    need(lig_params_worker_finalize(self->kv, MINUTE));
    lig_params_worker_close(self->kv);
    free(rows);
    free(self->order);
    free(self->starts);
    return NULL;
}

static mf_options *chosen; /* the function of a training_job takes no options */

static void open_params(mf_job *job)
{
    lig_params_options *options = &job->run->options;
    const char *name = job->options.techniques;
    int64_t last = job->first_loss + job->workers;
    lig_params_table table = {.key_count = (uint64_t)last,
                              .length = 2 * (uint32_t)job->options.rank};
    options->tables = &table;
    options->table_count = 1;
    options->dtype = LIG_FLOAT64;
    options->worker_count = (uint32_t)job->options.threads;
    options->techniques = strcmp(name, "replication_only") == 0  ? LIG_PARAMS_REPLICATION_ONLY
                          : strcmp(name, "relocation_only") == 0 ? LIG_PARAMS_RELOCATION_ONLY
                                                                 : LIG_PARAMS_ALL;
    need(lig_params_open(&job->params, options));
}

static void train(training_run *run)
{
    mf_job job = {.options = *chosen, .run = run};
    long threads = job.options.threads;
    job.train = mf_read(chosen->dataset, "train.mmc");
    job.test = mf_read(chosen->dataset, "test.mmc");
    if (job.test->rows > job.train->rows || job.test->columns > job.train->columns)
        mf_fail("test.mmc", "is larger than train.mmc");
    job.workers = (int)(run->nodes * (uint32_t)threads);
    job.row_block = ceiling(job.train->rows, job.workers);
    job.column_block = ceiling(job.train->columns, job.workers);
    job.first_column = (int64_t)job.row_block * job.workers;
    job.first_loss = job.first_column + job.train->columns;
    open_params(&job);
    mf_worker *workers = memory((size_t)threads, sizeof *workers);
    pthread_t *running = memory((size_t)threads, sizeof *running);
    for (int i = 0; i < threads; i++) {
        int id = (int)run->rank * (int)threads + i;
        workers[i] = (mf_worker){.job = &job, .id = id, .thread = i, .eps = chosen->eps};
        workers[i].random = (uint64_t)id ^ 13 * 17;
        if (pthread_create(&running[i], NULL, work, &workers[i]) != 0)
            mf_fail("threads", "cannot be started");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    need(lig_params_shutdown(job.params, MINUTE));
    lig_params_close(job.params);
    free(running);
    free(workers);
    mf_free(job.train);
    mf_free(job.test);
}

/* --- without options: generated data --- */

static int compare(void)
{
    training_job job = {.name = "matrix_factorization", .train = train};
    training_run *alone = training_open(&job, 1, (int)chosen->epochs);
    training_run *run = training_open(&job, 2, (int)chosen->epochs);
    mf_make_data("mf-data");
    training_start(&job, alone);
    training_start(&job, run);
    double first = alone->losses[0], one = alone->losses[chosen->epochs],
           other = run->losses[chosen->epochs];
    int held = one < first / 10 && fabs(one - other) < 0.1 * first;
    printf("loss %.6f, after %ld epochs %.6f in one process, %.6f on 2 nodes: %sconverged\n", first,
           chosen->epochs, one, other, held ? "" : "NOT ");
    training_close(run);
    training_close(alone);
    return held ? 0 : 1;
}

/* --- options --- */

static int read_options(mf_options *to, int count, char **words)
{
    const char *algorithm = "dsgd";
    const mf_option options[] = {
        {"dataset", 'd', NULL, NULL, &to->dataset},
        {"rank", 'r', &to->rank, NULL, NULL},
        {"epochs", 'e', &to->epochs, NULL, NULL},
        {"lambda", 'l', NULL, &to->lambda, NULL},
        {"eps", 0, NULL, &to->eps, NULL},
        {"bold_driver", 0, &to->bold_driver, NULL, NULL},
        {"increase_step_factor", 0, NULL, &to->increase, NULL},
        {"decrease_step_factor", 0, NULL, &to->decrease, NULL},
        {"algorithm", 0, NULL, NULL, &algorithm},
        {"signal_intent_rows", 0, &to->intent_rows, NULL, NULL},
        {"signal_intent_cols", 0, &to->intent_columns, NULL, NULL},
        {"num_threads", 't', &to->threads, NULL, NULL},
        {"wor_blocks", 0, &to->wor_blocks, NULL, NULL},
        {"wor_points", 0, &to->wor_points, NULL, NULL},
        {"sync_push", 0, &to->sync_push, NULL, NULL},
        {"init_parameters", 0, &to->init, NULL, NULL},
        {"model_seed", 0, &to->seed, NULL, NULL},
        {"sys.techniques", 0, NULL, NULL, &to->techniques},
        {"nodes", 0, &to->nodes, NULL, NULL},
        {NULL, 0, NULL, NULL, NULL},
    };
    for (int i = 1; i < count; i += 2)
        if (i + 1 == count || !mf_take_option(options, words[i], words[i + 1])) {
            fprintf(stderr, "matrix_factorization: unknown option or missing value: %s\n",
                    words[i]);
            return 0;
        }
    to->algorithm = strcmp(algorithm, "columnwise") == 0  ? COLUMNWISE
                    : strcmp(algorithm, "plain_sgd") == 0 ? PLAIN_SGD
                                                          : DSGD;
    return to->rank >= 2 && to->epochs >= 1 && to->epochs <= 10000 && to->threads >= 1 &&
           to->threads <= 64 && to->nodes >= 1 && to->nodes <= 16;
}

int main(int count, char **words)
{
    mf_options options = {.techniques = "all",
                          .rank = MF_RANK,
                          .epochs = 20,
                          .nodes = 1,
                          .threads = 1,
                          .seed = 134827,
                          .bold_driver = 1,
                          .intent_rows = 1,
                          .intent_columns = 1000,
                          .wor_blocks = 1,
                          .wor_points = 1,
                          .init = 2,
                          .lambda = 0.05,
                          .eps = 0.001,
                          .increase = 1.05,
                          .decrease = 0.5};
    training_job job = {.name = "matrix_factorization", .train = train};
    chosen = &options;
    if (!read_options(&options, count, words)) {
        fprintf(stderr, "usage: matrix_factorization --dataset FOLDER --rank N --epochs N\n");
        return 2;
    }
    if (options.dataset == NULL) {
        options.dataset = "mf-data";
        options.eps = 0.2;
        return compare();
    }
    training_run *run = training_open(&job, (uint32_t)options.nodes, (int)options.epochs);
    if (getenv("DMLC_ROLE") != NULL)
        training_launched(&job, run);
    else
        training_start(&job, run);
    training_close(run);
    return 0;
}
