/* The power is cut while a process works on a store: the disks that may be left are made from what
 * it wrote and synced, and each is opened anew. What was acknowledged must be there, bit by bit;
 * what was under way must have happened or not. The same with syncs, reads and writes that fail.
 *
 *   store_power_test               some hundred disks
 *   store_power_test soak [COUNT]  that many (10,000), and every call fails once
 *   store_power_test disk SEED FOLDER  makes one of them, to look at
 */
#include "disk_states.h"
#include "store_folder.h"
#include "store_peer.h"

enum { COMMANDS = 8, CASE_SEEDS = 1000000 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static int disks_a_case = 2;
static unsigned failing_every = 200;
#else
static int disks_a_case = 12;
static unsigned failing_every = 29;
#endif

typedef struct operation {
    const char *name;
    int closed, stray, fresh;       /* as in store_kill_test.c */
    const char *commands[COMMANDS]; /* one after the other, each is acknowledged */
} operation;

#define SMALLER "?cache=0&uring=0&direct=0"

static const operation operations[] = {
    {"save", 0, 0, 0, {"save new - 100 2 8000"}},
    {"save inline", 0, 0, 0, {"save new - 100 2 1000"}},
    {"replace", 0, 0, 0, {"save target r 100 2 20480"}},
    {"replace inline", 0, 0, 0, {"save small r 100 1 1000"}},
    {"replace in the background", 0, 0, 0, {"save target ra 100 3 40960"}},
    {"replace by shared bytes", 0, 0, 0, {"save target r 5 2 20480"}},
    {"retire", 0, 0, 0, {"retire target"}},
    {"alias", 0, 0, 0, {"alias best keep"}},
    {"rename", 0, 0, 0, {"rename target renamed"}},
    {"compact", 0, 1, 0, {"compact"}},
    {"repair", 0, 1, 0, {"repair"}},
    {"join", 0, 0, 0, {"join target r 100 1 40960"}},
    {"open", 1, 1, 0, {"open %s" SMALLER}},
    {"create", 1, 0, 1, {"open %s" SMALLER}},
    {"several saves",
     0,
     0,
     0,
     {"save small r 100 1 1000", "save new - 101 1 20480", "save small r 102 1 900",
      "save new r 103 2 18000", "alias best new", "save small r 105 1 1100"}},
    {"save, retire, compact, save",
     0,
     1,
     0,
     {"save new - 100 2 20480", "retire target", "compact", "save target - 104 1 20480",
      "retire new", "compact", "save small r 106 1 1000"}},
    {"create and save",
     1,
     0,
     1,
     {"open %s" SMALLER, "save small - 2 1 1000", "save new - 100 1 20480", "retire small", "close",
      "open %s" SMALLER, "save small - 5 1 1000"}},
    {"checkpoints",
     1,
     0,
     0,
     {"open %s" SMALLER "&log=4096", "save small r 100 1 1000", "save new - 101 1 20480",
      "save small r 102 1 900", "save new r 103 1 1800", "retire new", "compact",
      "save small r 105 1 1100"}},
    {"create, with checkpoints",
     1,
     0,
     1,
     {"open %s" SMALLER "&log=4096", "save small r 100 1 1900", "save new - 101 1 1900",
      "save small r 102 1 1900", "save new r 103 1 1900", "retire new", "save keep - 1 1 1900",
      "close"}},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

typedef struct stage {
    char folder[64], template[96], live[96], place[112], disks[96], disk[128];
    char stray[128], stray_name[64];
    char before[PEER_TEXT_BYTES];
    sigset_t mask;
    peer a, c;
    int refused;
    unsigned long disks_made, failed_calls, lost;
} stage;

typedef struct run { /* one operation, recorded */
    const operation *operation;
    int beside; /* another process has the store open */
    writes journal;
    int count, acknowledged[COMMANDS]; /* entries of the journal when it was */
    char looks[COMMANDS + 1][PEER_TEXT_BYTES];
} run;

/* --- the store that every operation begins with --- */

static void keep_stray(stage *self)
{
    char packs[160], path[256];
    snprintf(packs, sizeof packs, "%s/packs", self->template);
    newest_file(packs, self->stray_name, sizeof self->stray_name);
    snprintf(path, sizeof path, "%s/%s", packs, self->stray_name);
    snprintf(self->stray, sizeof self->stray, "%s/stray", self->folder);
    copy_file(path, self->stray);
    assert_int_equal(unlink(path), 0);
}

static void make_template(stage *self)
{
    static const char *const commands[] = {
        "save keep - 1 1 20480",  "save small - 2 1 1000", "save bulk - 11 1 9000",
        "save parent - 5 3 9000", "save child - 7 2 9000", "save target - 3 2 20480",
        "alias best target",      "retire parent",
    };
    peer maker;
    assert_int_equal(peer_start(&maker), 0);
    assert_answer(peer_ask(&maker, "open %s?fsync=0", self->template));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_answer(peer_ask(&maker, "%s", commands[i]));
    assert_answer(peer_ask(&maker, "look"));
    snprintf(self->before, sizeof self->before, "%s", maker.answer);
    assert_answer(peer_ask(&maker, "part stray r 50 1 65536"));
    peer_kill(&maker);
    keep_stray(self);
}

static int set_up(void **state)
{
    stage *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -1;
    *state = self;
    self->mask = trace_prepare();
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-power-XXXXXX");
    snprintf(self->disks, sizeof self->disks, "/dev/shm/ligament-power-XXXXXX");
    if (mkdtemp(self->folder) == NULL || peer_start(&self->a) || peer_start(&self->c))
        return -1;
    if (mkdtemp(self->disks) == NULL) /* memory is quicker */
        snprintf(self->disks, sizeof self->disks, "%s", self->folder);
    snprintf(self->template, sizeof self->template, "%s/template", self->folder);
    snprintf(self->live, sizeof self->live, "%s/live", self->folder);
    snprintf(self->place, sizeof self->place, "%s/store", self->live);
    snprintf(self->disk, sizeof self->disk, "%s/disk", self->disks);
    make_template(self);
    return 0;
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = peer_stop(&self->a) | peer_stop(&self->c);
    remove_folder(self->folder);
    remove_folder(self->disks);
    free(self);
    return failed;
}

static void set_place(const stage *self, const operation *asked)
{
    remove_folder(self->live);
    assert_int_equal(mkdir(self->live, 0777), 0);
    if (!asked->fresh)
        copy_folder(self->template, self->place);
}

static void put_stray(const stage *self, const operation *asked)
{
    char to[256];
    snprintf(to, sizeof to, "%s/packs/%s", self->place, self->stray_name);
    if (asked->stray)
        copy_file(self->stray, to);
}

/* --- recording --- */

static void begin(stage *self, const run *one, peer *b)
{
    const operation *asked = one->operation;
    set_place(self, asked);
    if (one->beside && !asked->fresh)
        assert_answer(peer_ask(&self->a, "open %s" SMALLER, self->place));
    assert_int_equal(peer_start(b), 0);
    assert_answer(asked->closed ? peer_ask(b, "close")
                                : peer_ask(b, "open %s" SMALLER, self->place));
    put_stray(self, asked);
}

static const char *command_text(const stage *self, const operation *asked, int at, char *text)
{
    snprintf(text, 256, asked->commands[at], self->place);
    return text;
}

/* What each command makes of the store, when nothing happens. */
static void learn(stage *self, run *one)
{
    char text[256];
    peer b;
    begin(self, one, &b);
    snprintf(one->looks[0], sizeof one->looks[0], "%s",
             one->operation->fresh ? "ok +0" : self->before);
    for (one->count = 0; one->count < COMMANDS && one->operation->commands[one->count];) {
        assert_answer(peer_ask(&b, "%s", command_text(self, one->operation, one->count, text)));
        int closed = strcmp(text, "close") == 0;
        if (!closed)
            assert_answer(peer_ask(&b, "look"));
        snprintf(one->looks[one->count + 1], sizeof one->looks[0], "%s",
                 closed ? one->looks[one->count] : b.answer);
        one->count++;
    }
    assert_int_equal(peer_stop(&b), 0);
    assert_answer(peer_ask(&self->a, "close"));
}

/* Asks a traced process. 0 when it does not answer. */
static int ask_traced(stage *self, trace *traced, peer *b, const char *text)
{
    peer_send(b, "%s", text);
    if (trace_run(traced, b->fd, SIZE_MAX, &self->mask) != TRACE_READABLE)
        return 0;
    peer_hear(b);
    writes_look(traced->observer, -1, 0, 0);
    return 1;
}

/* Begins to record. 0 where ptrace is not permitted. */
static int begin_recording(stage *self, run *one, trace *traced, peer *b, unsigned fail_at)
{
    begin(self, one, b);
    writes_begin(&one->journal, self->live);
    one->journal.fail_at = fail_at;
    int number = trace_begin(traced, b->process);
    self->refused = number == EPERM || number == ENOSYS;
    traced->observe = writes_observe;
    traced->observer = &one->journal;
    return !self->refused;
}

static void end_recording(stage *self, trace *traced, peer *b)
{
    traced->observe = NULL;
    trace_kill(traced, &self->mask);
    close(b->fd);
    free(traced);
    assert_answer(peer_ask(&self->a, "close"));
}

static void record(stage *self, run *one)
{
    char text[256];
    peer b;
    trace *traced = calloc(1, sizeof *traced);
    if (begin_recording(self, one, traced, &b, UINT_MAX))
        for (int i = 0; i < one->count; i++) {
            if (!ask_traced(self, traced, &b, command_text(self, one->operation, i, text)) ||
                !is_ok(b.answer))
                fail_msg("%s: %s: %s", one->operation->name, text, b.answer);
            one->acknowledged[i] = one->journal.count;
        }
    end_recording(self, traced, &b);
    assert_false(one->journal.full);
}

/* --- one disk --- */

static int same_but_extra(const char *look, const char *wanted, unsigned extra)
{
    const char *end = strrchr(look, '+');
    size_t bytes = end ? (size_t)(end - look) : 0;
    return bytes && strncmp(look, wanted, bytes) == 0 && wanted[bytes] == '+' &&
           strtoul(end + 1, NULL, 10) == extra;
}

/* What may be found. */
typedef struct expected {
    const char *looks[2];
    unsigned extra_least, extra_most; /* models that count as extra */
} expected;

static int is_expected(const char *look, const expected *wanted, unsigned more)
{
    int fits = 0;
    for (unsigned extra = wanted->extra_least; extra <= wanted->extra_most; extra++)
        fits |= same_but_extra(look, wanted->looks[0], extra + more) ||
                same_but_extra(look, wanted->looks[1], extra + more);
    return fits;
}

/* Opens the store with a process that knows nothing of it. NULL, or what is wrong. */
static const char *examine(stage *self, const char *place, const expected *wanted)
{
    static char text[PEER_TEXT_BYTES];
    const char *said = peer_ask(&self->c, "open %s?fsync=0", place);
    int fine = is_ok(said) && is_ok(said = peer_ask(&self->c, "look")) &&
               is_expected(said, wanted, 0) && is_ok(said = peer_ask(&self->c, "check")) &&
               is_ok(said = peer_ask(&self->c, "save extra7 - 207 1 20480")) &&
               is_ok(said = peer_ask(&self->c, "save extra8 - 208 1 1000")) &&
               is_ok(said = peer_ask(&self->c, "look")) && is_expected(said, wanted, 2);
    snprintf(text, sizeof text, "%.4000s", said);
    if (!is_ok(peer_ask(&self->c, "close"))) { /* it has crashed, or hangs */
        peer_kill(&self->c);
        assert_int_equal(peer_start(&self->c), 0);
    }
    return fine ? NULL : text;
}

static disk_choice draw_choice(uint64_t seed)
{
    static const unsigned keeps[] = {0, 16, 8, 8, 2, 14};
    disk_choice choice = {.random = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15)};
    for (int i = 0; i < 8; i++)
        disk_draw(&choice, 2);
    choice.keep = keeps[disk_draw(&choice, 6)];
    choice.strict = disk_draw(&choice, 2) == 1;
    return choice;
}

/* Somewhere, or right before or behind a sync or an acknowledgement. */
static int draw_cut(const run *one, uint64_t seed)
{
    disk_choice choice = draw_choice(seed ^ UINT64_C(0x5555555555555555));
    int cut = (int)disk_draw(&choice, (unsigned)one->journal.count + 1);
    unsigned kind = disk_draw(&choice, 4);
    if (kind == 0)
        return one->acknowledged[disk_draw(&choice, (unsigned)one->count)];
    while (kind == 1 && cut < one->journal.count && one->journal.entries[cut].kind != WRITES_SYNC)
        cut++;
    while (kind == 2 && cut < one->journal.count && one->journal.entries[cut].kind != WRITES_NAMED)
        cut++;
    return cut;
}

static void try_disk(stage *self, run *one, uint64_t seed)
{
    disk_choice choice = draw_choice(seed);
    int cut = draw_cut(one, seed), done = 0;
    while (done < one->count && one->acknowledged[done] <= cut)
        done++;
    const expected wanted = {
        {one->looks[done], one->looks[done < one->count ? done + 1 : done]}, 0, 0};
    char place[160];
    snprintf(place, sizeof place, "%s/store", self->disk);
    remove_folder(self->disk);
    disk_make(&one->journal, cut, &choice, self->disk);
    const char *wrong = examine(self, place, &wanted);
    self->disks_made++;
    self->lost += wrong != NULL;
    if (wrong)
        print_message(
            "%s%s: %d of %d entries, %d of %d acknowledged, keep %u/16%s, seed %llu: %s\n",
            one->operation->name, one->beside ? " beside another process" : "", cut,
            one->journal.count, done, one->count, choice.keep, choice.strict ? ", strict" : "",
            (unsigned long long)seed, wrong);
}

static void set_case(run *one, int number)
{
    one->operation = &operations[number % OPERATIONS];
    one->beside = (number + number / OPERATIONS) % 2;
}

static void power_cuts(void **state)
{
    stage *self = *state;
    int rounds = disks_a_case > 50 ? 2 : 1;
    for (int i = 0; i < rounds * OPERATIONS && !self->refused; i++) {
        run *one = calloc(1, sizeof *one);
        set_case(one, i);
        learn(self, one);
        record(self, one);
        unsigned long lost = self->lost;
        for (int k = 0; k < disks_a_case && !self->refused; k++)
            try_disk(self, one, (uint64_t)i * CASE_SEEDS + (uint64_t)k);
        if (self->lost > lost || disks_a_case > 50)
            print_message("%s: %d entries, %u syncs: %lu failures\n", one->operation->name,
                          one->journal.count, one->journal.calls[WRITES_SYNCS], self->lost - lost);
        writes_end(&one->journal);
        free(one);
    }
    if (self->refused) {
        print_message("ptrace is not permitted here: nothing is recorded\n");
        skip();
    }
    print_message("%lu disks, %lu failures\n", self->disks_made, self->lost);
    assert_int_equal(self->lost, 0);
}

/* --- calls that fail --- */

typedef struct failure {
    const char *what;
    writes_call call;
    int number, drop;
} failure;

static const failure failures[] = {
    {"sync", WRITES_SYNCS, EIO, 0},
    {"sync (and the pages are dropped)", WRITES_SYNCS, EIO, 1},
    {"read", WRITES_READS, EIO, 0},
    {"write", WRITES_WRITES, EIO, 0},
    {"write (no space)", WRITES_WRITES, ENOSPC, 0},
};
enum { FAILURES = sizeof failures / sizeof *failures };

/* What a process was told that met a failure, and then saved once more. */
typedef struct told {
    char first[PEER_TEXT_BYTES];
    int extra; /* the save was acknowledged */
} told;

static void meet_failure(stage *self, run *one, const failure *met, unsigned at, told *said)
{
    char text[256];
    peer b;
    trace *traced = calloc(1, sizeof *traced);
    int more = 1;
    *said = (told){.first = "error: no answer"};
    if (begin_recording(self, one, traced, &b, at)) {
        one->journal.fails = met->call;
        one->journal.number = met->number;
        one->journal.drop = met->drop;
        traced->reads = met->call == WRITES_READS;
        if (ask_traced(self, traced, &b, command_text(self, one->operation, 0, text)))
            snprintf(said->first, sizeof said->first, "%s", b.answer);
        if (one->operation->closed) /* a store that did not open does so now */
            more = ask_traced(self, traced, &b, text) && is_ok(b.answer);
        if (more && ask_traced(self, traced, &b, "save extra1 - 201 1 1000"))
            said->extra = is_ok(b.answer);
    }
    end_recording(self, traced, &b);
}

/* What it was told must hold for those who come after it, with the power cut in between or not. */
static void try_failure(stage *self, run *one, const failure *met, unsigned at)
{
    disk_choice none = {.random = 1};
    char place[160];
    told said;
    meet_failure(self, one, met, at, &said);
    /* A save that was refused may have happened: its outcome is unknown. */
    const expected wanted = {
        {one->looks[is_ok(said.first)], one->looks[1]}, (unsigned)said.extra, 1};
    const char *wrong = strncmp(said.first, "error: no answer", 16) == 0 ? said.first : NULL;
    const char *when = "at once";
    if (met->call == WRITES_READS && strstr(said.first, ": corrupt:") != NULL)
        wrong = "a read that fails is not damage";
    remove_folder(self->disk);
    disk_make(&one->journal, one->journal.count, &none, self->disk);
    snprintf(place, sizeof place, "%s/store", self->disk);
    if (wrong == NULL) {
        when = "afterwards";
        wrong = examine(self, self->place, &wanted);
    }
    if (wrong == NULL) {
        when = "after a power cut";
        wrong = examine(self, place, &wanted);
    }
    self->failed_calls += (unsigned long)one->journal.failed;
    self->lost += wrong != NULL;
    if (wrong)
        print_message("%s%s: %s %u fails: %s; the next save is %s; %s: %s\n", one->operation->name,
                      one->beside ? " beside another process" : "", met->what, at, said.first,
                      said.extra ? "acknowledged" : "refused", when, wrong);
    writes_end(&one->journal);
}

/* Each call of each kind that the operation makes fails once, or some of them do. */
static void try_failures(stage *self, run *one, unsigned *turn)
{
    const failure none = {"", WRITES_READS, 0, 0};
    unsigned counts[WRITES_CALLS];
    told said;
    meet_failure(self, one, &none, UINT_MAX - 1, &said);
    memcpy(counts, one->journal.calls, sizeof counts);
    writes_end(&one->journal);
    for (int i = 0; i < FAILURES && !self->refused; i++) {
        unsigned long lost = self->lost;
        for (unsigned k = 0; k < counts[failures[i].call]; k++)
            if ((*turn)++ % failing_every == 0)
                try_failure(self, one, &failures[i], k);
        if (failing_every == 1)
            print_message("%s: %u times a failing %s: %lu failures\n", one->operation->name,
                          counts[failures[i].call], failures[i].what, self->lost - lost);
    }
}

static void failing_calls(void **state)
{
    stage *self = *state;
    unsigned turn = 0;
    self->lost = 0;
    for (int i = 0; i < OPERATIONS && !self->refused; i++) {
        run *one = calloc(1, sizeof *one);
        one->operation = &operations[i];
        one->beside = i % 2;
        if (one->operation->commands[1] == NULL) {
            learn(self, one);
            try_failures(self, one, &turn);
        }
        free(one);
    }
    if (self->refused)
        skip();
    print_message("%lu failing calls, %lu failures\n", self->failed_calls, self->lost);
    assert_int_equal(self->lost, 0);
}

static char **disk_arguments;

/* Makes one disk where it can be looked at. */
static void one_disk(void **state)
{
    stage *self = *state;
    run *one = calloc(1, sizeof *one);
    uint64_t seed = strtoull(disk_arguments[0], NULL, 10);
    set_case(one, (int)(seed / CASE_SEEDS));
    learn(self, one);
    record(self, one);
    disk_choice choice = draw_choice(seed);
    disk_make(&one->journal, draw_cut(one, seed), &choice, disk_arguments[1]);
    writes_end(&one->journal);
    free(one);
}

int main(int count, char **arguments)
{
    const char *role = count > 1 ? arguments[1] : "";
    if (count == 3 && strcmp(role, "peer") == 0) {
        lig_log_set(store_peer_quiet, NULL);
        return store_peer_main(atoi(arguments[2]));
    }
    if (strcmp(role, "soak") == 0) {
        disks_a_case = (count > 2 ? atoi(arguments[2]) : 10000) / (2 * OPERATIONS) + 1;
        failing_every = 1;
    }
    disk_arguments = arguments + 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(power_cuts),
                                       cmocka_unit_test(failing_calls)};
    const struct CMUnitTest disk[] = {cmocka_unit_test(one_disk)};
    if (count == 4 && strcmp(role, "disk") == 0)
        return cmocka_run_group_tests(disk, set_up, tear_down);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
