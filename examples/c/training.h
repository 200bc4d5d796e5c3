/* Code shared by the examples of the parameter manager: processes, progress bar, plot.
 *
 * An example has a function train(run), which records the loss before the first epoch and after
 * each. training_main runs it in one process and on several nodes, plots both curves as SVG, and
 * compares the final losses. Under `ligament launch -w 0 -s 2 -- ./kge` the process is one of the
 * nodes. */
#ifndef TRAINING_H
#define TRAINING_H

#include <ligament/ligament.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MINUTE INT64_C(60000000000)
enum { BAR = 30 };

/* A training run over several nodes, as seen by one of them. */
typedef struct training_run {
    const char *name;
    uint32_t nodes, rank;
    int from, to, epochs; /* this run trains epochs from .. to - 1 of `epochs` */
    int count;            /* of losses */
    double *losses;       /* in memory shared by all processes */
    lig_params_options options;
    int shown;
} training_run;

typedef struct training_job {
    const char *name;
    void (*train)(training_run *run);
    int epochs;
    double tolerance; /* relative; 0: equal bits */
    int resume;       /* add a node half-way: train continues from its last save */
} training_job;

static inline void need(lig_status status)
{
    if (status == LIG_OK)
        return;
    fprintf(stderr, "%s\n", lig_error_text());
    exit(1);
}

static inline void *memory(size_t count, size_t bytes)
{
    void *data = calloc(count, bytes);
    if (data == NULL)
        exit(1);
    return data;
}

/* --- random numbers, the same on every machine --- */

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint32_t below(uint64_t *state, uint32_t count)
{
    return (uint32_t)(next_random(state) % count);
}

static inline float normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)(next_random(state) >> 11) / 9007199254740992.0;
    return (float)sum;
}

static inline void shuffle(uint64_t *state, int *list, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)below(state, (uint32_t)i + 1), kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }
}

/* --- the run --- */

/* Draws a progress bar on node 0: live on a terminal, otherwise only its final state. */
static inline void training_show(training_run *run, double done, int last)
{
    int filled = (int)(done / run->epochs * BAR + 0.5), live = isatty(STDERR_FILENO);
    if (run->rank != 0 || !(last || (live && filled != run->shown)))
        return;
    run->shown = filled;
    fprintf(stderr, "%s%s, %u node%s [", live ? "\r" : "", run->name, run->nodes,
            run->nodes == 1 ? " " : "s");
    for (int i = 0; i < BAR; i++)
        fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %3.0f%%  loss %.6f%s", 100 * done / run->epochs, run->losses[run->count - 1],
            last ? "\n" : "");
}

static inline void training_note(training_run *run, double loss)
{
    if (run->rank == 0)
        run->losses[run->count] = loss;
    run->count++;
    training_show(run, run->count - 1, run->count - 1 == run->to);
}

/* --- the plot --- */

typedef struct training_curve {
    const char *label, *colour;
    const double *losses;
    int broad;
} training_curve;

enum { LEFT = 64, TOP = 44, WIDE = 556, HIGH = 272 };

static inline void draw_curve(FILE *file, const training_curve *one, int count, double top)
{
    fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" points=\"",
            one->colour, one->broad ? 7 : 2);
    for (int i = 0; i < count; i++)
        fprintf(file, "%.1f,%.1f ", LEFT + (double)WIDE * i / (count - 1),
                TOP + HIGH * (1 - one->losses[i] / top));
    fprintf(file, "\"/>\n");
    for (int i = 0; i < count && !one->broad; i++)
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                LEFT + (double)WIDE * i / (count - 1), TOP + HIGH * (1 - one->losses[i] / top),
                one->colour);
    int y = TOP + (one->broad ? 14 : 34);
    fprintf(file, "<path d=\"M450 %dh24\" stroke=\"%s\" stroke-width=\"%d\"/>", y - 4, one->colour,
            one->broad ? 7 : 2);
    fprintf(file, "<text x=\"482\" y=\"%d\">%s</text>\n", y, one->label);
}

/* A round distance between grid lines, of which there are four to ten. */
static inline double round_step(double top)
{
    double power = pow(10, floor(log10(top)));
    return top < 2 * power ? power / 5 : top < 5 * power ? power / 2 : power;
}

/* The first curve is wide and pale, so that one on top of it is visible. */
static inline void draw_curves(const char *name, const training_curve *curves, int curve_count,
                               int count)
{
    char path[300];
    double top = 0;
    snprintf(path, sizeof path, "%s.svg", name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    for (int c = 0; c < curve_count; c++)
        for (int i = 0; i < count; i++)
            top = curves[c].losses[i] * 1.05 > top ? curves[c].losses[i] * 1.05 : top;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" width=\"640\" "
            "height=\"360\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
            "<rect width=\"640\" height=\"360\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"24\" font-size=\"15\">%s: loss by epoch</text>\n",
            LEFT, name);
    double step = round_step(top);
    for (int i = 0; i * step <= top; i++) {
        double y = TOP + HIGH * (1 - i * step / top);
        fprintf(file, "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>", LEFT, y, WIDE);
        fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", LEFT - 8,
                y + 4, i * step);
    }
    for (int i = 0; i < count; i += 1 + count / 12)
        fprintf(file, "<text x=\"%.1f\" y=\"334\" text-anchor=\"middle\">%d</text>\n",
                LEFT + (double)WIDE * i / (count - 1), i);
    fprintf(file, "<rect x=\"444\" y=\"%d\" width=\"176\" height=\"42\" fill=\"white\"/>\n", TOP);
    for (int c = 0; c < curve_count; c++)
        draw_curve(file, &curves[c], count, top);
    fprintf(file, "<text x=\"%d\" y=\"352\" text-anchor=\"middle\">epoch</text>\n</svg>\n",
            LEFT + WIDE / 2);
    fclose(file);
    printf("loss curve: %s\n", path);
}

/* --- processes --- */

/* Runs `train` in one new process per node; the losses that node 0 records are visible here. */
static inline void training_start(const training_job *job, training_run *run)
{
    char address[128];
    int failed = 0, ended;
    snprintf(address, sizeof address, "shm:%s-%d", job->name, (int)getpid());
    run->options = (lig_params_options)LIG_PARAMS_OPTIONS_INIT;
    run->options.node_count = run->nodes;
    run->options.address = run->nodes > 1 ? address : NULL;
    run->count = run->from > 0 ? run->from + 1 : 0;
    fflush(stdout);
    for (run->rank = 0; run->rank < run->nodes; run->rank++)
        if (fork() == 0) {
            run->options.rank = run->rank;
            job->train(run);
            exit(0);
        }
    while (wait(&ended) > 0)
        failed |= !WIFEXITED(ended) || WEXITSTATUS(ended) != 0;
    if (failed)
        exit(1);
}

static inline uint32_t number(const char *name, uint32_t fallback)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static inline void training_launched(const training_job *job, training_run *run)
{
    char address[300];
    char *secret = NULL;
    const char *path = getenv("LIGAMENT_SECRET_FILE"), *host = getenv("DMLC_PS_ROOT_URI");
    snprintf(address, sizeof address, "%s:%u", host ? host : "", number("DMLC_PS_ROOT_PORT", 0));
    run->nodes = number("DMLC_NUM_SERVER", 1);
    run->rank = number("DMLC_NODE_RANK", 0);
    run->options = (lig_params_options)LIG_PARAMS_OPTIONS_INIT;
    run->options.rank = run->rank;
    run->options.node_count = run->nodes;
    run->options.address = address;
    run->options.flags = number("LIGAMENT_SCHEDULER", 0) ? LIG_PARAMS_HAS_SCHEDULER : 0;
    if (path)
        need(lig_secret_read(path, &secret, &run->options.secret_bytes));
    run->options.secret = secret;
    job->train(run);
    training_curve curve = {"this run", "#1d5c96", run->losses, 0};
    if (run->rank == 0)
        draw_curves(job->name, &curve, 1, run->count);
    lig_secret_free(secret);
}

static inline int training_compare(const training_job *job, const training_run *alone,
                                   const training_run *run, const char *label)
{
    double one = alone->losses[alone->epochs], other = run->losses[run->epochs];
    size_t bytes = ((size_t)alone->epochs + 1) * sizeof one;
    double tolerance = job->tolerance * (run->nodes - 1); /* rows are staler on more nodes */
    int held = tolerance > 0 ? fabs(other - one) <= tolerance * one
                             : memcmp(alone->losses, run->losses, bytes) == 0;
    printf("loss %.6f in one process, %.6f on %s: %s", one, other, label, held ? "" : "NOT ");
    if (tolerance > 0)
        printf("equal within %.0f%%\n", 100 * tolerance);
    else
        printf("equal bits in every epoch\n");
    return held ? 0 : 1;
}

static inline training_run *training_open(const training_job *job, uint32_t nodes, int epochs)
{
    training_run *run = memory(1, sizeof *run);
    size_t bytes = ((size_t)epochs + 1) * sizeof(double);
    *run = (training_run){.name = job->name, .nodes = nodes, .to = epochs, .epochs = epochs};
    run->losses = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->losses == MAP_FAILED)
        exit(1);
    return run;
}

static inline void training_close(training_run *run)
{
    munmap(run->losses, ((size_t)run->epochs + 1) * sizeof(double));
    free(run);
}

/* Trains in one process, then on several nodes. */
static inline int training_twins(const training_job *job, uint32_t nodes, int epochs)
{
    char label[64];
    training_run *alone = training_open(job, 1, epochs), *run = training_open(job, nodes, epochs);
    training_start(job, alone);
    run->to = job->resume ? epochs / 2 : epochs;
    training_start(job, run);
    snprintf(label, sizeof label, "%u nodes", nodes);
    if (job->resume) {
        run->nodes++, run->from = run->to, run->to = epochs;
        training_start(job, run);
        snprintf(label, sizeof label, "%u nodes, then %u", nodes, nodes + 1);
    }
    training_curve curves[2] = {{"one process", "#f2a65a", alone->losses, 1},
                                {label, "#1d5c96", run->losses, 0}};
    draw_curves(job->name, curves, 2, epochs + 1);
    int status = training_compare(job, alone, run, label);
    training_close(run);
    training_close(alone);
    return status;
}

/* Arguments: number of nodes (2), number of epochs. */
static inline int training_main(const training_job *job, int count, char **words)
{
    uint32_t nodes = count > 1 ? (uint32_t)strtoul(words[1], NULL, 10) : 2;
    int epochs = count > 2 ? (int)strtol(words[2], NULL, 10) : job->epochs;
    if (nodes < 2 || nodes > 16 || epochs < 2 || epochs > 100) {
        fprintf(stderr, "usage: %s [NODES [EPOCHS]]: 2 to 16, 2 to 100\n", job->name);
        return 2;
    }
    if (getenv("DMLC_ROLE") == NULL)
        return training_twins(job, nodes, epochs);
    training_run *run = training_open(job, 0, epochs);
    training_launched(job, run);
    training_close(run);
    return 0;
}

#endif
