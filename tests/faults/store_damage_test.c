/* Every file of a store is damaged in every way, and the store is used: nothing may crash or hang,
 * no load may return wrong bytes, and what is missing must be told.
 *
 *   store_damage_test               some hundred damaged stores
 *   store_damage_test soak [COUNT [refusals]]  that many (5,000); "refusals": and what did not open
 *   store_damage_test one SEED [FOLDER]  one of them, step by step; kept in the folder as damaged
 */
#include "store_folder.h"
#include "store_peer.h"

#include <ligament/find.h>

enum { MODELS = 24, NAME = 40, VALUE = 48, FILES = 96, PATH = 300 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static long damages = 12;
#else
static long damages = 150;
#endif
static int loud, show_refusals;

/* --- what the process under test does besides (store_peer.h) --- */

static lig_status save_graph(store_peer *self, const char *name)
{
    int64_t floats[2] = {3000, 500};
    const char *names[2] = {"t60", "t61"};
    const lig_layer layers[2] = {{"t60", "dense", 5}, {"t61", "relu", 4}};
    const lig_input input = {0, 0};
    const lig_call calls[2] = {{0, 0, NULL}, {1, 1, &input}};
    const lig_graph graph = {"test 1", layers, calls, 2, 2};
    lig_save_options options = LIG_SAVE_INIT;
    lig_tensor tensors[2];
    for (int i = 0; i < 2; i++) {
        scene_fill(self->data[i], (size_t)floats[i] * 4, 60 + (uint64_t)i);
        tensors[i] = scene_tensor(names[i], self->data[i], &floats[i]);
    }
    options.graphs = &graph;
    options.graph_count = 1;
    return lig_store_save(self->store, name, tensors, 2, &options);
}

static lig_status save_tied(store_peer *self, const char *name)
{
    int64_t floats = 20480;
    scene_fill(self->data[0], (size_t)floats * 4, 70);
    const lig_tensor tensors[2] = {scene_tensor("t70", self->data[0], &floats),
                                   scene_tensor("t70.tied", self->data[0], &floats)};
    return lig_store_save(self->store, name, tensors, 2, NULL);
}

/* " name=tensors" for each model that loads, " name=!" for each that does not, " name=DIFFERS". */
static lig_status survey(store_peer *self, char *answer)
{
    lig_query query = LIG_QUERY_INIT;
    lig_model **models;
    lig_match **matches;
    size_t count, used = 2, match_count;
    query.order = "name";
    lig_status status = lig_store_models(self->store, &query, &models, &count);
    if (status != LIG_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        char one[512] = "";
        char *space;
        lig_status found = peer_compare(self, models[i]->name, one, sizeof one);
        while ((space = strchr(one + 1, ' ')) != NULL)
            *space = ',';
        const char *value = strchr(one, '{');
        used +=
            (size_t)snprintf(answer + used, PEER_TEXT_BYTES - used, " %.31s=%.40s", models[i]->name,
                             found != LIG_OK          ? "!"
                             : strstr(one, "DIFFERS") ? "DIFFERS"
                             : value                  ? value
                                                      : "");
    }
    lig_models_destroy(models, count);
    status = peer_aliases(self, answer + used, PEER_TEXT_BYTES - used);
    for (char *at = answer + used; (at = strchr(at, '>')) != NULL;)
        *at = '=';
    if (lig_store_find_like(self->store, "graph", NULL, &matches, &match_count) == LIG_OK)
        lig_matches_destroy(matches, match_count);
    return status;
}

/* "ok <count> <sentences>" */
static lig_status problems(store_peer *self, uint32_t flags, char *answer)
{
    lig_report *report;
    lig_status status = lig_store_check(self->store, flags, &report);
    if (status != LIG_OK)
        return status;
    size_t used = (size_t)snprintf(answer, PEER_TEXT_BYTES, "ok %zu", report->problem_count);
    for (size_t i = 0; i < report->problem_count && used + 300 < PEER_TEXT_BYTES; i++)
        used += (size_t)snprintf(answer + used, PEER_TEXT_BYTES - used, " | %.280s",
                                 report->problems[i]);
    lig_report_destroy(report);
    return LIG_OK;
}

static void act(void *context, char *command, char *answer)
{
    store_peer *self = context;
    lig_status status = LIG_OK;
    if (strcmp(command, "survey") == 0)
        status = survey(self, answer);
    else if (strcmp(command, "problems") == 0)
        status = problems(self, 0, answer);
    else if (strcmp(command, "mend") == 0)
        status = problems(self, LIG_CHECK_REPAIR, answer);
    else if (strcmp(command, "graph") == 0)
        status = save_graph(self, command);
    else if (strcmp(command, "tied") == 0)
        status = save_tied(self, command);
    else
        peer_act(context, command, answer);
    if (status != LIG_OK)
        snprintf(answer, PEER_TEXT_BYTES, "error: %s: %s: %s", command, lig_status_name(status),
                 lig_error_text());
}

static int damage_peer_main(int fd)
{
    store_peer *self = calloc(1, sizeof *self);
    if (self == NULL)
        return 1;
    lig_log_set(store_peer_quiet, NULL);
    self->fd = fd;
    peer_serve(fd, act, self);
    peer_close(self);
    free(self);
    return 0;
}

/* --- the stores that are damaged --- */

typedef struct surveyed {
    int count;
    char names[MODELS][NAME], values[MODELS][VALUE];
} surveyed;

typedef struct base_store {
    const char *how, *options;
    int killed;
    char now[96], older[96];
    surveyed models;
} base_store;

typedef struct stage {
    char folder[64], place[96];
    base_store bases[4];
    peer c;
    char what[200]; /* the damage */
    char said[PEER_TEXT_BYTES];
    unsigned long made, refused, silent, crashed, wrong;
} stage;

enum { BASES = 4 };

static void parse_survey(const char *answer, surveyed *out)
{
    out->count = 0;
    for (const char *at = strchr(answer, ' '); at && out->count < MODELS; at = strchr(at + 1, ' '))
        out->count +=
            sscanf(at, " %39[^= ]=%47s", out->names[out->count], out->values[out->count]) == 2;
}

static const char *value_of(const surveyed *self, const char *name)
{
    for (int i = 0; i < self->count; i++)
        if (strcmp(self->names[i], name) == 0)
            return self->values[i];
    return NULL;
}

static void make_base(base_store *base)
{
    static const char *const commands[] = {
        "save keep - 1 1 20480",
        "save small - 2 1 1000",
        "save old - 3 2 20480",
        "tied",
        "graph",
        "save parent - 5 3 20480",
        "save child - 7 2 20480",
        "alias best keep",
        "retire parent",
        "join joined r 80 1 40000",
        NULL, /* the older copy is made here */
        "save old r 20 1 20480",
        "save small r 21 1 900",
        "save late - 22 1 20480",
        "save tiny - 23 1 10",
        "alias best late",
    };
    peer maker;
    assert_int_equal(peer_start(&maker), 0);
    assert_answer(peer_ask(&maker, "open %s?uring=auto%s", base->now, base->options));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (commands[i] == NULL)
            copy_folder(base->now, base->older);
        else
            assert_answer(peer_ask(&maker, "%s", commands[i]));
    assert_answer(peer_ask(&maker, "survey"));
    parse_survey(maker.answer, &base->models);
    if (base->killed)
        peer_kill(&maker);
    else
        assert_int_equal(peer_stop(&maker), 0);
}

static int set_up(void **state)
{
    static const char *const hows[BASES] = {"closed", "killed", "closed, with checkpoints",
                                            "killed, with checkpoints"};
    stage *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -1;
    *state = self;
    snprintf(self->folder, sizeof self->folder, "/dev/shm/ligament-damage-XXXXXX");
    if (mkdtemp(self->folder) == NULL) {
        snprintf(self->folder, sizeof self->folder, "/tmp/ligament-damage-XXXXXX");
        if (mkdtemp(self->folder) == NULL)
            return -1;
    }
    snprintf(self->place, sizeof self->place, "%s/store", self->folder);
    if (peer_start(&self->c))
        return -1;
    for (int i = 0; i < BASES; i++) {
        base_store *base = &self->bases[i];
        base->how = hows[i];
        base->killed = i % 2;
        base->options = i / 2 ? "&log=8192" : "";
        snprintf(base->now, sizeof base->now, "%s/base%d", self->folder, i);
        snprintf(base->older, sizeof base->older, "%s/older%d", self->folder, i);
        make_base(base);
    }
    return 0;
}

static int make_readable(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)at;
    if (kind != FTW_SL && (info->st_mode & 0600) != 0600)
        chmod(path, 0700);
    return 0;
}

static void clear_place(const char *path)
{
    nftw(path, make_readable, 16, FTW_PHYS);
    remove_folder(path);
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = peer_stop(&self->c);
    clear_place(self->folder);
    free(self);
    return failed;
}

/* --- damage --- */

typedef struct file_list {
    int count;
    char paths[FILES][PATH]; /* below the store */
} file_list;

static void list_files(const char *place, const char *below, file_list *out)
{
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/%s", place, below);
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char inner[PATH];
        struct stat info;
        snprintf(inner, sizeof inner, "%.100s%s%.180s", below, *below ? "/" : "",
                 entries[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", place, inner);
        if (entries[i]->d_name[0] != '.' && lstat(path, &info) == 0) {
            if (S_ISDIR(info.st_mode))
                list_files(place, inner, out);
            if (out->count < FILES)
                snprintf(out->paths[out->count++], PATH, "%s", inner);
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static void overwrite(const char *path, uint64_t at, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        assert_int_equal(pwrite(fd, data, bytes, (off_t)at), (ssize_t)bytes);
        close(fd);
    }
}

/* Where something is: zeros are the larger part of some files. */
static uint64_t find_content(const char *path, uint64_t bytes, uint64_t *random)
{
    uint64_t at = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 64 && bytes && fd >= 0; i++) {
        uint8_t byte = 0;
        at = scene_random(random) % bytes;
        if (pread(fd, &byte, 1, (off_t)at) == 1 && byte)
            break;
    }
    if (fd >= 0)
        close(fd);
    return at;
}

typedef struct damage_context {
    const base_store *base;
    const char *path, *file; /* in full, and below the store */
    const char *other;       /* another one, in full */
    uint64_t bytes, random;
} damage_context;

typedef struct damage_kind {
    const char *name;
    void (*make)(damage_context *at);
    int to_folders; /* also those */
} damage_kind;

static void flip_bit(damage_context *at)
{
    uint64_t where = find_content(at->path, at->bytes, &at->random);
    uint8_t byte = 0;
    int fd = open(at->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pread(fd, &byte, 1, (off_t)where) != 1)
        byte = 0;
    close(fd);
    byte ^= (uint8_t)(1u << scene_random(&at->random) % 8);
    if (at->bytes)
        overwrite(at->path, where, &byte, 1);
}

static void fill_sector(damage_context *at, int value)
{
    uint8_t sector[512];
    uint64_t where = find_content(at->path, at->bytes, &at->random) / 512 * 512;
    memset(sector, value, sizeof sector);
    if (value)
        scene_fill(sector, sizeof sector, at->random);
    if (at->bytes)
        overwrite(at->path, where, sector, at->bytes - where < 512 ? at->bytes - where : 512);
}

static void zero_sector(damage_context *at)
{
    fill_sector(at, 0);
}

static void garble_sector(damage_context *at)
{
    fill_sector(at, 1);
}

static void cut_off(damage_context *at)
{
    static const unsigned shares[] = {0, 1, 2, 3};
    uint64_t share = shares[scene_random(&at->random) % 4];
    uint64_t bytes =
        share == 3 ? find_content(at->path, at->bytes, &at->random) : at->bytes * share / 2;
    bytes -= share == 2 && bytes; /* the last byte */
    assert_int_equal(truncate(at->path, (off_t)bytes), 0);
}

static void extend(damage_context *at)
{
    uint8_t garbage[6000];
    scene_fill(garbage, sizeof garbage, at->random);
    overwrite(at->path, at->bytes, garbage, 1 + at->random % sizeof garbage);
}

static void empty(damage_context *at)
{
    uint8_t zeros[65536] = {0};
    for (uint64_t from = 0; from < at->bytes; from += sizeof zeros)
        overwrite(at->path, from, zeros,
                  at->bytes - from < sizeof zeros ? at->bytes - from : sizeof zeros);
}

static void erase(damage_context *at)
{
    clear_place(at->path);
}

static void swap(damage_context *at)
{
    char third[2 * PATH];
    snprintf(third, sizeof third, "%s.swapped", at->path);
    if (rename(at->path, third) == 0 && rename(at->other, at->path) == 0)
        rename(third, at->other);
}

static void make_older(damage_context *at)
{
    char from[2 * PATH];
    struct stat info;
    snprintf(from, sizeof from, "%s/%s", at->base->older, at->file);
    if (stat(from, &info) == 0 && S_ISREG(info.st_mode))
        copy_file(from, at->path);
}

static void lock_up(damage_context *at)
{
    chmod(at->path, 0);
}

static void make_folder(damage_context *at)
{
    clear_place(at->path);
    mkdir(at->path, 0777);
}

static void make_file(damage_context *at)
{
    clear_place(at->path);
    copy_file("/proc/self/cmdline", at->path);
}

static void make_link(damage_context *at)
{
    clear_place(at->path);
    assert_int_equal(symlink(at->random % 2 ? at->other : "/nowhere/at/all", at->path), 0);
}

static void make_fifo(damage_context *at)
{
    clear_place(at->path);
    assert_int_equal(mkfifo(at->path, 0666), 0);
}

static const damage_kind kinds[] = {
    {"a bit is flipped", flip_bit, 0},
    {"a bit is flipped", flip_bit, 0},
    {"a bit is flipped", flip_bit, 0},
    {"a sector is zeroed", zero_sector, 0},
    {"a sector is garbled", garble_sector, 0},
    {"it is cut off", cut_off, 0},
    {"garbage is appended", extend, 0},
    {"it is zeroed", empty, 0},
    {"it is removed", erase, 1},
    {"it is swapped with another", swap, 0},
    {"it is an older copy", make_older, 0},
    {"it may not be read", lock_up, 1},
    {"it is a folder", make_folder, 0},
    {"it is a file", make_file, 1},
    {"it is a link", make_link, 1},
    {"it is a FIFO", make_fifo, 1},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Damages a fresh copy. 0 when the kind does not apply. */
static int damage(stage *self, const base_store *base, uint64_t seed)
{
    static file_list files;
    char path[2 * PATH], other[2 * PATH];
    struct stat info;
    damage_context at = {.base = base, .path = path, .other = other, .random = seed};
    scene_random(&at.random);
    clear_place(self->place);
    copy_folder(base->now, self->place);
    files.count = 0;
    list_files(self->place, "", &files);
    const damage_kind *kind = &kinds[scene_random(&at.random) % KINDS];
    int number = (int)(scene_random(&at.random) % (uint64_t)files.count);
    int second = (int)(scene_random(&at.random) % (uint64_t)files.count);
    at.file = files.paths[number];
    snprintf(path, sizeof path, "%s/%s", self->place, at.file);
    snprintf(other, sizeof other, "%s/%s", self->place, files.paths[second]);
    assert_int_equal(lstat(path, &info), 0);
    if ((S_ISDIR(info.st_mode) && !kind->to_folders) || number == second)
        return 0;
    at.bytes = (uint64_t)info.st_size;
    kind->make(&at);
    snprintf(self->what, sizeof self->what, "%s, %.80s: %s", base->how, at.file, kind->name);
    return 1;
}

/* --- what the store does about it --- */

static const char *ask(stage *self, const char *text)
{
    const char *said = peer_ask(&self->c, "%s", text);
    if (loud)
        print_message("  %s -> %s\n", text, said);
    snprintf(self->said, sizeof self->said, "%.4000s", said);
    if (strcmp(said, "error: the process is gone") == 0 || strcmp(said, "error: no answer") == 0) {
        self->crashed++;
        print_message("%s: %s: %s\n", self->what, text, said);
        peer_kill(&self->c);
        assert_int_equal(peer_start(&self->c), 0);
    }
    return self->said;
}

static int ask_survey(stage *self, surveyed *out)
{
    out->count = 0;
    if (!is_ok(ask(self, "survey")))
        return 0;
    parse_survey(self->said, out);
    return 1;
}

/* Models that are missing or old, and that no error is about; the first of them. */
static int count_missing(const surveyed *wanted, const surveyed *found, const char **first)
{
    int missing = 0;
    for (int i = 0; i < wanted->count; i++) {
        const char *value = value_of(found, wanted->names[i]);
        if (value && (strcmp(value, "!") == 0 || strcmp(value, wanted->values[i]) == 0))
            continue;
        if (missing++ == 0)
            *first = wanted->names[i];
    }
    return missing;
}

static void complain(stage *self, const char *when, const char *what, const char *name)
{
    self->silent++;
    print_message("%s; %s: %s: %s\n", self->what, when, what, name);
}

static void find_wrong(stage *self, const surveyed *found, const char *when)
{
    for (int i = 0; i < found->count; i++)
        if (strcmp(found->values[i], "DIFFERS") == 0) {
            self->wrong++;
            print_message("%s; %s: wrong bytes: %s\n", self->what, when, found->names[i]);
        }
}

/* Opens, looks, and asks for problems where something is missing. 0 when it does not open. */
static int look_around(stage *self, const base_store *base, const char *options, surveyed *found)
{
    char text[256];
    const char *first = "";
    snprintf(text, sizeof text, "open %s?%s", self->place, options);
    found->count = 0;
    if (!is_ok(ask(self, text)))
        return 0;
    if (!ask_survey(self, found))
        return 1;
    find_wrong(self, found, options);
    int missing = count_missing(&base->models, found, &first);
    if (missing == 0)
        return 1;
    if (is_ok(ask(self, "problems")) && strncmp(self->said, "ok 0", 4) == 0)
        complain(self, options, "silently lost", first);
    return 1;
}

/* What was there must still be there. */
static void keeps(stage *self, surveyed *before, const char *when)
{
    surveyed now;
    if (before->count == 0 || !ask_survey(self, &now))
        return;
    find_wrong(self, &now, when);
    for (int i = 0; i < before->count; i++) {
        const char *value = value_of(&now, before->names[i]);
        if (strcmp(before->values[i], "!") != 0 &&
            (value == NULL || strcmp(value, before->values[i]) != 0))
            complain(self, when, "lost", before->names[i]);
    }
    *before = now;
}

static void use(stage *self, const base_store *base)
{
    surveyed found;
    char text[256];
    look_around(self, base, "mode=r", &found);
    ask(self, "close");
    if (look_around(self, base, "fsync=0", &found)) {
        ask(self, "save extra1 - 201 1 1000");
        keeps(self, &found, "after a save");
        int mended = is_ok(ask(self, "mend"));
        keeps(self, &found, "after a repair");
        if (!is_ok(ask(self, "save extra2 - 202 1 20480")) && mended)
            complain(self, "after a repair", "a save is refused", self->said);
        keeps(self, &found, "after another save");
        ask(self, "compact");
        keeps(self, &found, "after compacting");
    } else {
        self->refused++;
        if (show_refusals)
            print_message("%s: %s\n", self->what, self->said);
    }
    ask(self, "close");
    snprintf(text, sizeof text, "open %s?fsync=0", self->place);
    if (is_ok(ask(self, text)))
        keeps(self, &found, "opened again");
    else if (found.count)
        complain(self, "opened again", self->said, "");
    ask(self, "close");
}

static void try_damage(stage *self, uint64_t seed)
{
    const base_store *base = &self->bases[seed % BASES];
    unsigned long before = self->silent + self->crashed + self->wrong;
    if (!damage(self, base, seed * UINT64_C(0x9E3779B97F4A7C15) + 1))
        return;
    self->made++;
    use(self, base);
    if (self->silent + self->crashed + self->wrong > before)
        print_message("    that was seed %llu\n", (unsigned long long)seed);
}

static void damaged_stores(void **state)
{
    stage *self = *state;
    for (uint64_t seed = 0; self->made < (unsigned long)damages; seed++) {
        try_damage(self, seed);
        if (damages > 1000 && self->made % 1000 == 999)
            print_message("%lu damaged stores\n", self->made + 1);
    }
    print_message(
        "%lu damaged stores: %lu crashes, %lu wrong bytes, %lu silent losses (%lu refused)\n",
        self->made, self->crashed, self->wrong, self->silent, self->refused);
    assert_int_equal(self->crashed + self->wrong + self->silent, 0);
}

static char **one_arguments;

static void one_store(void **state)
{
    stage *self = *state;
    uint64_t seed = strtoull(one_arguments[0], NULL, 10);
    loud = 1;
    if (one_arguments[1] != NULL &&
        damage(self, &self->bases[seed % BASES], seed * UINT64_C(0x9E3779B97F4A7C15) + 1))
        copy_folder(self->place, one_arguments[1]);
    try_damage(self, seed);
    print_message("%s\n", self->what);
}

int main(int count, char **arguments)
{
    const char *role = count > 1 ? arguments[1] : "";
    if (count == 3 && strcmp(role, "peer") == 0)
        return damage_peer_main(atoi(arguments[2]));
    if (strcmp(role, "soak") == 0)
        damages = count > 2 ? atol(arguments[2]) : 5000;
    show_refusals = count > 3 && strcmp(arguments[3], "refusals") == 0;
    one_arguments = arguments + 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_stores)};
    const struct CMUnitTest one[] = {cmocka_unit_test(one_store)};
    if (count > 2 && strcmp(role, "one") == 0)
        return cmocka_run_group_tests(one, set_up, tear_down);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
