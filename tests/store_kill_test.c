/* A process is killed at each of the system calls by which it changes a store; then others work on,
 * in several orders. What was acknowledged must be there, bit by bit; what was under way must have
 * happened or not, alike for everyone from then on.
 *
 *   store_kill_test                  some hundred points, spread over the operations
 *   store_kill_test soak [--kills N] all points in all orders, then N kills at random moments
 *   store_kill_test random --kills N the random moments alone
 */
#include "format_1.h"
#include "store_folder.h"
#include "store_peer.h"
#include "trace_kill.h"

#include <time.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { POINTS_A_CASE = 1 }; /* a program takes long to start there */
#else
enum { POINTS_A_CASE = 3 };
#endif

typedef struct operation {
    const char *name, *command; /* "%s" is the URI */
    const char *options; /* of the URI; "?share=network" for everybody, else for the killed one */
    int closed;          /* the killed process has not opened the store before */
    int stray;           /* there is a leftover pack */
    int fresh;           /* there is no store yet */
    int after_kill;      /* another was killed when its commit was written, but not shown */
    int format_1;        /* the store is of format 1 */
    int behind;          /* commits that the killed process made before: the index lacks them */
} operation;

#define REPLACE "save target r 100 2 20480"

static const operation operations[] = {
    {"save", "save new - 100 2 20480", "", 0, 0, 0, 0, 0, 0},
    {"save inline", "save new - 100 2 1000", "", 0, 0, 0, 0, 0, 0},
    {"replace", REPLACE, "", 0, 0, 0, 0, 0, 0},
    {"save and write the index", "save new - 100 2 1000", "", 0, 0, 0, 0, 0, 32},
    {"replace inline", "save small r 100 1 1000", "", 0, 0, 0, 0, 0, 0},
    {"replace in the background", "save target ra 100 3 262144", "?cache=0", 0, 0, 0, 0, 0, 0},
    {"replace by shared bytes", "save target r 5 2 20480", "", 0, 0, 0, 0, 0, 0},
    {"retire", "retire target", "", 0, 0, 0, 0, 0, 0},
    {"alias", "alias best keep", "", 0, 0, 0, 0, 0, 0},
    {"rename", "rename target renamed", "", 0, 0, 0, 0, 0, 0},
    {"compact", "compact", "", 0, 1, 0, 0, 0, 0},
    {"repair", "repair", "", 0, 1, 0, 0, 0, 0},
    {"join", "join target r 100 1 40960", "", 0, 0, 0, 0, 0, 0},
    {"open", "open %s", "", 1, 1, 0, 0, 0, 0},
    {"create", "open %s", "", 1, 0, 1, 0, 0, 0},
    {"open after a kill", "open %s", "", 1, 1, 0, 1, 0, 0},
    {"upgrade", "open %s", "", 1, 0, 0, 0, 1, 0},
    {"save, several hosts", "save new - 100 2 20480", "?share=network", 0, 0, 0, 0, 0, 0},
    {"replace inline, several hosts", "save small r 100 1 1000", "?share=network", 0, 0, 0, 0, 0,
     0},
    {"compact, several hosts", "compact", "?share=network", 0, 1, 0, 0, 0, 0},
    {"become shared", "open %s?share=network&index=%s-b", "?share=network", 1, 0, 0, 0, 0, 0},
};
static const operation replacing = {"replace", REPLACE, "", 0, 0, 0, 0, 0, 0};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Who does what after the kill, without syncs, which tell nobody anything here: A has held the
 * store open all the time, C opens it now, R only reads. o: open, l: look, s: save, c: compact, k:
 * check. */
static const char *const orders_beside[] = {"Co As", "Al As Co", "Ac Co As", "Rl Ak Co Cc As",
                                            "Co Cc As Ac"};
static const char *const orders_alone[] = {"Co Cs", "Co Cc Cs", "Rl Co Ck Cs"};

static int all; /* points and orders */
static long kill_count = 10000;

typedef struct stage {
    char folder[64], template[96], format_1[96], stray[160], stray_name[64], place[96];
    char uri[320];
    char before[PEER_TEXT_BYTES];
    sigset_t mask;
    peer a, c, d;
    int refused; /* ptrace is not permitted */
    unsigned long points, ran, lost;
} stage;

typedef struct kill_case {
    const operation *operation;
    int beside;    /* A holds the store open */
    size_t commit; /* the step at which the process before it is killed */
    trace whole;   /* the operation without a kill */
    char after[PEER_TEXT_BYTES];
} kill_case;

/* --- the place --- */

/* The pack that a part left whose process was killed. */
static void put_stray(const stage *self)
{
    char to[200];
    snprintf(to, sizeof to, "%s/packs/%s", self->place, self->stray_name);
    copy_file(self->stray, to);
}

/* The place for a process of that host, where operations of several hosts are asked for: they share
 * the store's folder and nothing else. */
static const char *place_on(stage *self, const operation *asked, char host, const char *options)
{
    if (strcmp(asked->options, "?share=network") == 0)
        snprintf(self->uri, sizeof self->uri, "%s?share=network&index=%s-%c%s%s", self->place,
                 self->place, host, options[0] ? "&" : "", options);
    else
        snprintf(self->uri, sizeof self->uri, "%s%s%s", self->place, options[0] ? "?" : "",
                 options);
    return self->uri;
}

static void set_place(const stage *self, const operation *asked)
{
    static const char hosts[] = "ab";
    char index[128];

    for (const char *host = hosts; *host; host++) {
        snprintf(index, sizeof index, "%s-%c", self->place, *host);
        remove_folder(index);
    }
    remove_folder(self->place);
    if (!asked->fresh)
        copy_folder(asked->format_1 ? self->format_1 : self->template, self->place);
}

/* --- the store that every point begins with --- */

static void keep_stray(stage *self, const char *packs)
{
    char newest[PATH_MAX];
    newest_file(packs, self->stray_name, sizeof self->stray_name);
    snprintf(newest, sizeof newest, "%s/%s", packs, self->stray_name);
    snprintf(self->stray, sizeof self->stray, "%s/stray", self->folder);
    copy_file(newest, self->stray);
}

/* `parent` leaves a pack that is more than half dead; with the inline models the catalog is large
 * enough to grow ahead. */
static void make_template(stage *self)
{
    static const char *const commands[] = {
        "save bulk1 - 11 1 15000", "save bulk2 - 12 1 15000", "save bulk3 - 13 1 15000",
        "save bulk4 - 14 1 15000", "save bulk5 - 15 1 15000", "save keep - 1 1 20480",
        "save small - 2 1 1000",   "save target - 3 2 20480", "save parent - 5 3 20480",
        "save child - 7 2 20480",  "alias best target",       "retire parent",
        "part stray r 50 1 65536",
    };
    char packs[128];
    peer maker;
    assert_int_equal(peer_start(&maker), 0);
    assert_answer(peer_ask(&maker, "open %s?fsync=0", self->template));
    for (size_t i = 0; i + 1 < sizeof commands / sizeof *commands; i++)
        assert_answer(peer_ask(&maker, "%s", commands[i]));
    assert_answer(peer_ask(&maker, "look"));
    snprintf(self->before, sizeof self->before, "%s", maker.answer);
    assert_answer(peer_ask(&maker, "%s", commands[sizeof commands / sizeof *commands - 1]));
    peer_kill(&maker);
    snprintf(packs, sizeof packs, "%s/packs", self->template);
    keep_stray(self, packs);
    copy_folder(self->template, self->format_1);
    assert_int_equal(format_1_make(self->format_1), 0);
}

static int set_up(void **state)
{
    stage *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -1;
    *state = self;
    self->mask = trace_prepare();
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-kill-XXXXXX");
    if (mkdtemp(self->folder) == NULL || peer_start(&self->a) || peer_start(&self->c) ||
        peer_start(&self->d))
        return -1;
    snprintf(self->template, sizeof self->template, "%s/template", self->folder);
    snprintf(self->format_1, sizeof self->format_1, "%s/format_1", self->folder);
    snprintf(self->place, sizeof self->place, "%s/store", self->folder);
    make_template(self);
    return 0;
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = peer_stop(&self->a) | peer_stop(&self->c) | peer_stop(&self->d);
    remove_folder(self->folder);
    free(self);
    return failed;
}

/* --- one point --- */

/* Runs the operation in a process of its own, up to step `kill_at`. */
static enum trace_end run_operation(stage *self, const operation *asked, size_t kill_at,
                                    trace *traced)
{
    enum trace_end end = TRACE_FAILED;
    const char *own = strcmp(asked->options, "?cache=0") == 0 ? "cache=0" : "";
    peer b;
    assert_int_equal(peer_start(&b), 0);
    /* Also where nothing is to be opened: the program has started when it answers. */
    assert_answer(asked->closed ? peer_ask(&b, "close")
                                : peer_ask(&b, "open %s", place_on(self, asked, 'b', own)));
    for (int i = 0; i < asked->behind; i++) /* at last as it was */
        assert_answer(peer_ask(&b, "alias best %s", i % 2 ? "target" : "keep"));
    if (asked->stray)
        put_stray(self);
    int number = trace_begin(traced, b.process);
    self->refused = number == EPERM || number == ENOSYS;
    if (number == 0) {
        char command[320];
        snprintf(command, sizeof command, asked->command, self->place, self->place);
        peer_send(&b, "%s", command);
        end = trace_run(traced, b.fd, kill_at, &self->mask);
    }
    if (end == TRACE_READABLE && !is_ok(peer_hear(&b)))
        fail_msg("%s: %s", asked->name, b.answer);
    if (end != TRACE_KILLED)
        trace_kill(traced, &self->mask);
    close(b.fd);
    return end;
}

/* The same in a fresh place, with all that comes before. */
static enum trace_end run_killed(stage *self, kill_case *one, size_t kill_at, trace *traced)
{
    set_place(self, one->operation);
    if (one->beside)
        assert_answer(
            peer_ask(&self->a, "open %s", place_on(self, one->operation, 'a', "fsync=0")));
    if (one->operation->after_kill)
        assert_int_equal(run_operation(self, &replacing, one->commit, traced), TRACE_KILLED);
    return run_operation(self, one->operation, kill_at, traced);
}

typedef struct verdict { /* of one point */
    const kill_case *one;
    const char *before;
    const char *seen; /* `before` or `after`, once somebody has settled it */
    int happened;     /* somebody has seen `after` */
    unsigned extra;
    char what[PEER_TEXT_BYTES + 128];
} verdict;

/* 1 when what a look told fits what was seen before. */
static int judge(verdict *self, const char *answer, int settled)
{
    const char *end = strrchr(answer, '+');
    size_t bytes = end ? (size_t)(end - answer) : 0;
    const char *states[2] = {self->before, self->one->after}, *now = NULL;
    for (int i = 0; i < 2 && now == NULL; i++)
        if (bytes && strncmp(states[i], answer, bytes) == 0 && states[i][bytes] == '+')
            now = states[i];
    int same = strcmp(states[0], states[1]) == 0;
    int fits = now && (self->seen == NULL || now == self->seen) &&
               (!self->happened || now != self->before || same) &&
               strtoul(end + 1, NULL, 10) == self->extra;
    if (!fits)
        snprintf(self->what, sizeof self->what, "%.3000s", answer);
    self->happened |= now == self->one->after;
    if (settled)
        self->seen = now;
    return fits;
}

static int answered(verdict *self, const char *answer)
{
    if (!is_ok(answer))
        snprintf(self->what, sizeof self->what, "%.3000s", answer);
    return is_ok(answer);
}

/* One step of an order, "Co" or the like. */
static int act(stage *self, verdict *found, const char *step)
{
    peer *who = step[0] == 'A' ? &self->a : step[0] == 'C' ? &self->c : &self->d;
    if (step[0] == 'R') {
        if (found->one->operation->fresh)
            return 1;
        return answered(found, peer_ask(who, "open %s",
                                        place_on(self, found->one->operation, 'b', "mode=r"))) &&
               judge(found, peer_ask(who, "look"), 0) && answered(found, peer_ask(who, "close"));
    }
    switch (step[1]) {
    case 'l': return judge(found, peer_ask(who, "look"), 0);
    case 'o':
        return answered(
            found, peer_ask(who, "open %s", place_on(self, found->one->operation, 'b', "fsync=0")));
    case 'c': return answered(found, peer_ask(who, "compact"));
    case 'k': return answered(found, peer_ask(who, "check"));
    default: break;
    }
    found->extra++;
    return answered(found,
                    peer_ask(who, "save extra%u - %u 1 20480", found->extra, 200 + found->extra));
}

/* All agree in the end, nothing is wrong, and saves go on. */
static int conclude(stage *self, verdict *found)
{
    return judge(found, peer_ask(&self->c, "look"), 1) &&
           (!found->one->beside || judge(found, peer_ask(&self->a, "look"), 1)) &&
           act(self, found, "Do") && judge(found, peer_ask(&self->d, "look"), 1) &&
           act(self, found, "Dk") && act(self, found, "Ds") && act(self, found, "Ck") &&
           judge(found, peer_ask(&self->c, "look"), 1) &&
           (!found->one->beside || judge(found, peer_ask(&self->a, "look"), 1));
}

static void try_point(stage *self, kill_case *one, size_t step, const char *order)
{
    trace *traced = calloc(1, sizeof *traced);
    assert_non_null(traced);
    enum trace_end end = run_killed(self, one, step, traced);
    verdict found = {.one = one,
                     .before = one->operation->fresh ? "ok +0" : self->before,
                     .what = "the process hangs, or has exited on its own"};
    int fine = end != TRACE_FAILED;
    for (const char *at = order; fine && *at; at += at[2] ? 3 : 2)
        fine = act(self, &found, at);
    fine = fine && conclude(self, &found);
    peer_ask(&self->a, "close");
    peer_ask(&self->c, "close");
    peer_ask(&self->d, "close");
    self->points++;
    self->ran += end == TRACE_KILLED;
    self->lost += !fine;
    if (!fine)
        print_message("%s%s, killed %s call %ld (step %zu), then %s: %s\n", one->operation->name,
                      one->beside ? " beside another process" : "",
                      traced->log[step].ended ? "after" : "before", traced->log[step].call, step,
                      order, found.what);
    free(traced);
}

/* --- the tests --- */

/* The last step that writes: the record of the log. */
static size_t find_commit(stage *self, trace *traced)
{
    set_place(self, &replacing);
    if (run_operation(self, &replacing, SIZE_MAX, traced) != TRACE_READABLE)
        return SIZE_MAX;
    size_t step = traced->step;
    while (step > 0 && !trace_wrote(&traced->log[step - 1]))
        step--;
    return step - 1;
}

/* Learns the steps of the operation, and what it makes of the store. */
static void measure(stage *self, kill_case *one)
{
    if (one->operation->after_kill)
        one->commit = find_commit(self, &one->whole);
    if (self->refused)
        return;
    enum trace_end end = run_killed(self, one, SIZE_MAX, &one->whole);
    if (self->refused)
        return;
    assert_int_equal(end, TRACE_READABLE);
    assert_in_range(one->whole.step, 1, TRACE_LOG_MAX);
    assert_answer(peer_ask(&self->c, "open %s", place_on(self, one->operation, 'b', "fsync=0")));
    assert_answer(peer_ask(&self->c, "look"));
    snprintf(one->after, sizeof one->after, "%s", self->c.answer);
    assert_answer(peer_ask(&self->a, "close"));
    assert_answer(peer_ask(&self->c, "close"));
}

/* Without `all`: after each write, and some others, evenly spread. */
static int is_chosen(const kill_case *one, size_t step)
{
    size_t steps = one->whole.step;
    return all || trace_wrote(&one->whole.log[step]) ||
           step * POINTS_A_CASE / steps != (step + 1) * POINTS_A_CASE / steps;
}

static void try_case(stage *self, kill_case *one)
{
    const char *const *orders = one->beside ? orders_beside : orders_alone;
    size_t order_count = one->beside ? sizeof orders_beside / sizeof *orders_beside
                                     : sizeof orders_alone / sizeof *orders_alone;
    measure(self, one);
    if (self->refused)
        return;
    unsigned long lost = self->lost;
    for (size_t i = 0; i < one->whole.step; i++)
        for (size_t k = 0; k < (all ? order_count : 1) && is_chosen(one, i); k++)
            try_point(self, one, i, orders[(i + k) % order_count]);
    if (all)
        print_message("%s%s: %zu steps, %zu orders: %lu failures\n", one->operation->name,
                      one->beside ? " beside another process" : "", one->whole.step, order_count,
                      self->lost - lost);
}

static void points(void **state)
{
    stage *self = *state;
    for (int i = 0; i < 2 * OPERATIONS && !self->refused; i++) {
        kill_case *one = calloc(1, sizeof *one);
        one->operation = &operations[i / 2];
        one->beside = i % 2;
        /* A new store has nobody beside it, nor one that is upgraded; a commit that does not show
         * needs somebody. */
        int alone = one->operation->fresh || one->operation->format_1;
        if (one->beside ? !alone : !one->operation->after_kill)
            try_case(self, one);
        free(one);
    }
    if (self->refused) {
        print_message("ptrace is not permitted here: no process is killed at its system calls\n");
        skip();
    }
    print_message("%lu points, %lu kills, %lu failures\n", self->points, self->ran, self->lost);
    assert_int_equal(self->lost, 0);
}

/* The last seed that a churning process acknowledged before it was killed, 0 for none: some time
 * after it began, or after its first save. */
static unsigned churn(stage *self, unsigned seed, uint64_t *random)
{
    struct timespec delay = {0, (long)(scene_random(random) % 8000000)};
    unsigned acknowledged = 0;
    peer b;
    assert_int_equal(peer_start(&b), 0);
    assert_answer(peer_ask(&b, "open %s", self->place));
    peer_send(&b, "churn target r %u 1 20480", seed);
    if (scene_random(random) % 4)
        acknowledged = (unsigned)strtoul(peer_hear(&b), NULL, 10);
    nanosleep(&delay, NULL);
    kill(b.process, SIGKILL);
    while (recv(b.fd, b.answer, sizeof b.answer, 0) > 0)
        acknowledged = (unsigned)strtoul(b.answer, NULL, 10);
    peer_kill(&b);
    return acknowledged;
}

/* A has the store open, B replaces a model and is killed, C opens the store, A saves. */
static void kills(void **state)
{
    stage *self = *state;
    unsigned seed = 1000, acknowledged = 3, lost = 0;
    uint64_t random = 7;
    set_place(self, &replacing);
    assert_answer(peer_ask(&self->a, "open %s?fsync=0", self->place));
    for (long i = 0; i < kill_count; i++) {
        char last[32], next[32];
        unsigned now = churn(self, seed, &random);
        acknowledged = now ? now : acknowledged;
        snprintf(last, sizeof last, " target{t%u ", acknowledged);
        snprintf(next, sizeof next, " target{t%u ", now ? now + 1 : seed);
        assert_answer(peer_ask(&self->c, "open %s?fsync=0", self->place));
        int fine = is_ok(peer_ask(&self->a, "save keep r %ld 1 20480", 1 + i % 2)) &&
                   is_ok(peer_ask(&self->a, "look"));
        const char *shown = self->a.answer;
        int happened = fine && strstr(shown, next) != NULL;
        fine = fine && strstr(shown, "DIFFERS") == NULL && (happened || strstr(shown, last));
        if (!fine) {
            lost++;
            print_message("kill %ld: wanted%sor%s: %s\n", i, last, next, shown);
            assert_answer(peer_ask(&self->a, "save target r 3 1 20480"));
        }
        acknowledged = !fine ? 3 : happened ? (now ? now + 1 : seed) : acknowledged;
        seed = (acknowledged > seed ? acknowledged : seed) + 1;
        if (i % 1000 == 999)
            print_message("%ld kills, %u losses\n", i + 1, lost);
    }
    assert_answer(peer_ask(&self->a, "check"));
    print_message("%ld kills, %u losses\n", kill_count, lost);
    assert_int_equal(lost, 0);
}

int main(int count, char **arguments)
{
    const char *role = count > 1 ? arguments[1] : "";
    if (count == 3 && strcmp(role, "peer") == 0)
        return store_peer_main(atoi(arguments[2]));
    all = strcmp(role, "soak") == 0;
    if (count > 3 && strcmp(arguments[2], "--kills") == 0)
        kill_count = atol(arguments[3]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(points), cmocka_unit_test(kills)};
    const struct CMUnitTest short_tests[] = {cmocka_unit_test(points)};
    const struct CMUnitTest random_tests[] = {cmocka_unit_test(kills)};
    if (strcmp(role, "random") == 0)
        return cmocka_run_group_tests(random_tests, set_up, tear_down);
    return all ? cmocka_run_group_tests(tests, set_up, tear_down)
               : cmocka_run_group_tests(short_tests, set_up, tear_down);
}
