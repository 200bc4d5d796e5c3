/* Roles: what each may see and do, and clients that try to get around it. */
#include "store/serve/message/served_changes.h"
#include "store/serve/message/served_models.h"
#include "store/serve/message/served_reads.h"
#include "store/serve/message/served_save.h"
#include "store/serve/message/served_state.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/secret.h>
#include <ligament/serve.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

enum { LONG = 3 << 18 };

static float team_data[LONG], other_data[LONG], back[LONG];
static int64_t length = LONG;

#define KEY(letter) letter "0123456789abcdef0123456789abcdef"
static const char roles_text[] = "root admin " KEY("r") "\nalice write " KEY(
    "a") " team/*\n"
         "bob read " KEY("b") " team/*\ncarol read " KEY("c") "\n";

typedef struct fixture {
    char folder[64], place[128], secrets[128];
    lig_server *server;
    lig_store *local;
    uint64_t pack, other_pack, other_id, offset, other_offset;
} fixture;

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static lig_tensor tensor_of(const char *name, float *data)
{
    return (lig_tensor){.name = name,
                        .data = data,
                        .bytes = sizeof team_data,
                        .shape = &length,
                        .ndim = 1,
                        .dtype = LIG_FLOAT32};
}

static void save(lig_store *store, const char *name, float *data)
{
    lig_tensor tensor = tensor_of("w", data);
    lig_save_options options = LIG_SAVE_INIT;
    assert_ok(lig_store_save(store, name, &tensor, 1, &options));
}

static void place_of(lig_store *store, const char *name, uint64_t *pack, uint64_t *offset,
                     uint64_t *id)
{
    lig_model *model;
    assert_ok(lig_store_model(store, name, &model));
    *pack = model->tensors[0].pack;
    *offset = model->tensors[0].offset;
    if (id)
        *id = model->id;
    lig_model_destroy(model);
}

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    lig_server_options options = LIG_SERVER_INIT;
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-roles-XXXXXX");
    if (mkdtemp(self->folder) == NULL)
        return -1;
    snprintf(self->place, sizeof self->place, "file://%s/store", self->folder);
    snprintf(self->secrets, sizeof self->secrets, "%s/secrets", self->folder);
    write_file(self->secrets, roles_text);
    for (size_t i = 0; i < LONG; i++) {
        team_data[i] = (float)i;
        other_data[i] = (float)(2 * i + 1);
    }
    assert_ok(lig_store_open(&self->local, self->place));
    save(self->local, "team/a", team_data);
    save(self->local, "other/x", other_data);
    place_of(self->local, "team/a", &self->pack, &self->offset, NULL);
    place_of(self->local, "other/x", &self->other_pack, &self->other_offset, &self->other_id);
    options.secret_file = self->secrets;
    options.flags = LIG_SERVER_ALLOW_SHUTDOWN;
    assert_ok(lig_server_open(&self->server, self->place, &options));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    char command[128];
    lig_server_close(self->server);
    lig_store_close(self->local);
    snprintf(command, sizeof command, "rm -rf '%s'", self->folder);
    int failed = system(command);
    free(self);
    return failed;
}

static lig_status open_as(const fixture *self, const char *line, const char *more,
                          lig_store **store)
{
    char path[128], uri[512];
    snprintf(path, sizeof path, "%s/key", self->folder);
    write_file(path, line);
    snprintf(uri, sizeof uri, "ligament://%s?secret_file=%s%s", lig_server_address(self->server),
             path, more);
    return lig_store_open(store, uri);
}

static lig_store *client(const fixture *self, const char *key)
{
    lig_store *store = NULL;
    assert_ok(open_as(self, key, "&transport=tcp", &store));
    return store;
}

static void expect_denied(lig_status status, const char *who, const char *what)
{
    assert_status(status, LIG_E_DENIED);
    assert_says(who);
    assert_says(what);
}

/* --- what roles do --- */

static void test_roles_save_and_read_what_they_may(void **state)
{
    fixture *self = *state;
    lig_store *alice = client(self, "alice " KEY("a")), *bob = client(self, KEY("b"));
    lig_store *carol = client(self, "carol read " KEY("c")), *root = client(self, KEY("r"));
    lig_tensor tensor = tensor_of("w", back);
    save(alice, "team/b", team_data);
    expect_denied(lig_store_save(alice, "other/y", &tensor, 1, NULL), "'alice'", "'other/y'");
    expect_denied(lig_store_save(bob, "team/c", &tensor, 1, NULL), "'bob'", "'save'");
    expect_denied(lig_store_save(carol, "team/c", &tensor, 1, NULL), "'carol'", "'save'");
    assert_ok(lig_store_load(bob, "team/b", &tensor, 1));
    assert_memory_equal(back, team_data, sizeof back);
    expect_denied(lig_store_load(bob, "other/x", &tensor, 1), "'bob'", "'other/x'");
    assert_ok(lig_store_load(carol, "other/x", &tensor, 1));
    assert_memory_equal(back, other_data, sizeof back);
    expect_denied(lig_store_retire(alice, "other/x"), "'alice'", "'retire'");
    expect_denied(lig_store_alias(alice, "best", "team/b"), "'alice'", "'best'");
    expect_denied(lig_store_alias(alice, "team/best", "other/x"), "'alice'", "'other/x'");
    assert_ok(lig_store_alias(alice, "team/best", "team/b"));
    assert_ok(lig_store_load(bob, "team/best", &tensor, 1));
    lig_report *report;
    expect_denied(lig_store_compact(alice, &report), "'alice'", "'compact'");
    expect_denied(lig_store_shutdown_server(carol), "'carol'", "'shutdown'");
    assert_ok(lig_store_compact(root, &report));
    lig_report_destroy(report);
    save(root, "anywhere", other_data);
    lig_store_close(alice);
    lig_store_close(bob);
    lig_store_close(carol);
    lig_store_close(root);
}

static void test_only_the_models_of_the_prefix_exist(void **state)
{
    fixture *self = *state;
    lig_store *bob = client(self, KEY("b"));
    lig_model **models, *model;
    lig_store_stats stats;
    lig_lineage *lineage;
    char *alias, *named, text[1024];
    size_t count;
    lig_save_options child = LIG_SAVE_INIT;
    lig_tensor tensor = tensor_of("w", team_data);
    child.parent = "other/x";
    assert_ok(lig_store_save(self->local, "team/child", &tensor, 1, &child));
    assert_ok(lig_store_alias(self->local, "best", "team/a"));
    assert_ok(lig_store_alias(self->local, "team/secret", "other/x"));
    assert_ok(lig_store_models(bob, NULL, &models, &count));
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(strncmp(models[i]->name, "team/", 5), 0);
    lig_models_destroy(models, count);
    assert_status(lig_store_model_id(bob, self->other_id, &model), LIG_E_NOTFOUND);
    assert_status(lig_store_model(bob, "team/secret", &model), LIG_E_NOTFOUND);
    assert_status(lig_store_alias_at(bob, 0, &alias, &named), LIG_E_NOTFOUND);
    assert_ok(lig_store_lineage(bob, "team/child", &lineage));
    assert_int_equal(lineage->ancestor_count, 0);
    lig_lineage_destroy(lineage);
    assert_ok(lig_store_stat(bob, &stats));
    assert_int_equal(stats.models, 2);
    assert_int_equal(stats.packs, 0);
    assert_int_equal(stats.bytes, 2 * sizeof team_data);
    assert_ok(lig_store_describe(bob, text, sizeof text));
    assert_null(strstr(text, self->folder));
    lig_store_close(bob);
}

static void test_search_finds_only_the_prefix(void **state)
{
    fixture *self = *state;
    lig_store *bob = client(self, KEY("b")), *carol = client(self, KEY("c"));
    lig_tensor tensor = tensor_of("w", team_data);
    const lig_layer layer = {.name = "w", .signature = "dense 3", .signature_bytes = 7};
    const lig_call call = {.layer = 0};
    const lig_graph graph = {
        .kind = "test", .layers = &layer, .calls = &call, .layer_count = 1, .call_count = 1};
    lig_save_options options = LIG_SAVE_INIT;
    options.graphs = &graph;
    options.graph_count = 1;
    lig_match **matches;
    size_t count;
    assert_ok(lig_store_save(self->local, "other/g", &tensor, 1, &options));
    assert_ok(lig_store_find(carol, &graph, NULL, &matches, &count));
    assert_int_equal(count, 1);
    lig_matches_destroy(matches, count);
    assert_ok(lig_store_find(bob, &graph, NULL, &matches, &count));
    assert_int_equal(count, 0);
    lig_matches_destroy(matches, count);
    assert_ok(lig_store_save(self->local, "team/g", &tensor, 1, &options));
    assert_ok(lig_store_find(bob, &graph, NULL, &matches, &count));
    assert_int_equal(count, 1);
    assert_string_equal(matches[0]->model->name, "team/g");
    tensor.data = back;
    assert_ok(lig_store_load_match(bob, matches[0], &tensor, 1));
    assert_memory_equal(back, team_data, sizeof back);
    tensor.data = team_data;
    lig_matches_destroy(matches, count);
    expect_denied(lig_store_find_like(bob, "other/g", NULL, &matches, &count), "'bob'",
                  "'other/g'");
    lig_store_close(bob);
    lig_store_close(carol);
}

static void test_events_of_others_are_not_told(void **state)
{
    fixture *self = *state;
    lig_store *bob = client(self, KEY("b"));
    lig_watch *watch;
    lig_event event;
    lig_update rename = LIG_UPDATE_INIT;
    assert_ok(lig_store_watch(bob, NULL, LIG_WATCH_NOW, &watch));
    uint64_t before = lig_watch_since(watch);
    save(self->local, "other/y", team_data);
    assert_status(lig_watch_next(watch, 0, &event), LIG_E_TIMEOUT);
    assert_true(lig_watch_since(watch) > before);
    rename.name = "team/moved";
    assert_ok(lig_store_update(self->local, "other/y", &rename));
    assert_ok(lig_watch_next(watch, LIG_FOREVER, &event));
    assert_int_equal(event.kind, LIG_EVENT_UPDATED);
    assert_string_equal(event.name, "team/moved");
    assert_true(event.other == NULL || event.other[0] == '\0');
    rename.name = "other/again";
    assert_ok(lig_store_update(self->local, "team/moved", &rename));
    assert_ok(lig_watch_next(watch, LIG_FOREVER, &event));
    assert_int_equal(event.kind, LIG_EVENT_RETIRED);
    assert_string_equal(event.name, "team/moved");
    assert_ok(lig_store_alias(self->local, "team/secret", "other/x"));
    save(self->local, "team/z", team_data);
    assert_ok(lig_watch_next(watch, LIG_FOREVER, &event));
    assert_string_equal(event.name, "team/z");
    lig_watch_close(watch);
    lig_store_close(bob);
}

/* Bytes of other prefixes are written again, those of the role's own models are shared. */
static void test_sharing_stays_inside_the_prefix(void **state)
{
    fixture *self = *state;
    lig_store *alice = client(self, KEY("a"));
    uint64_t pack, offset;
    save(alice, "team/same", team_data);
    place_of(self->local, "team/same", &pack, &offset, NULL);
    assert_int_equal(pack, self->pack);
    save(alice, "team/stolen", other_data);
    place_of(self->local, "team/stolen", &pack, &offset, NULL);
    assert_int_not_equal(pack, self->other_pack);
    lig_tensor tensor = tensor_of("w", back);
    assert_ok(lig_store_load(alice, "team/stolen", &tensor, 1));
    assert_memory_equal(back, other_data, sizeof back);
    lig_store_close(alice);
}

static void test_shared_memory_needs_a_pass(void **state)
{
    fixture *self = *state;
    lig_store *alice = NULL;
    char text[1024];
    lig_tensor tensor = tensor_of("w", back);
    assert_ok(open_as(self, KEY("a"), "&transport=shm", &alice));
    assert_ok(lig_store_describe(alice, text, sizeof text));
    assert_non_null(strstr(text, "served over shm"));
    expect_denied(lig_store_save(alice, "other/y", &tensor, 1, NULL), "'alice'", "'other/y'");
    save(alice, "team/shm", team_data);
    assert_ok(lig_store_load(alice, "team/shm", &tensor, 1));
    assert_memory_equal(back, team_data, sizeof back);
    lig_store_close(alice);
}

/* --- clients that try --- */

static void open_raw(const fixture *self, raw_client *raw, const char *key)
{
    char uri[256];
    snprintf(uri, sizeof uri, "tcp://%s", lig_server_address(self->server));
    raw_open_as(raw, uri, key, 9, NULL);
    assert_true(raw->met);
}

static lig_status raw_number(raw_client *raw, ligi_served_op op, uint64_t number)
{
    ligi_writer body = {0};
    ligi_served_number_put(&body, number);
    lig_status status = raw_ask(raw, op, &body);
    ligi_writer_fini(&body);
    return status;
}

static lig_status raw_read(raw_client *raw, uint64_t pack, uint64_t offset, uint64_t bytes)
{
    ligi_served_range range = {offset, bytes};
    ligi_served_read read = {.pack = pack, .ranges = &range, .count = 1};
    ligi_writer body = {0};
    ligi_served_read_put(&body, &read);
    lig_status status = raw_ask(raw, LIGI_SERVED_READ, &body);
    ligi_writer_fini(&body);
    return status;
}

static lig_status raw_resolve(raw_client *raw, const char *name, uint64_t id)
{
    ligi_writer body = {0};
    ligi_served_selector selector = {.name = name, .id = id, .flags = LIGI_SERVED_HOLD};
    ligi_served_selector_put(&body, &selector);
    lig_status status = raw_ask(raw, LIGI_SERVED_RESOLVE, &body);
    ligi_writer_fini(&body);
    return status;
}

static void test_ranges_of_others_are_not_read(void **state)
{
    fixture *self = *state;
    raw_client raw;
    static const uint8_t zeros[LIG_SECRET_BYTES];
    open_raw(self, &raw, KEY("b"));
    assert_true(raw.welcome.flags & LIGI_SERVED_LIMITED);
    assert_false(raw.welcome.flags & LIGI_SERVED_DESCRIPTORS);
    assert_memory_equal(raw.welcome.secret, zeros, sizeof zeros);
    expect_denied(raw_read(&raw, self->pack, self->offset, 64), "'bob'", "resolve");
    expect_denied(raw_read(&raw, self->other_pack, self->other_offset, 64), "'bob'", "resolve");
    expect_denied(raw_number(&raw, LIGI_SERVED_PACK_SIZE, self->other_pack), "'bob'", "pack");
    assert_ok(raw_resolve(&raw, "team/a", 0));
    assert_ok(raw_read(&raw, self->pack, self->offset, 64));
    assert_ok(raw_read(&raw, self->pack, self->offset, sizeof team_data));
    assert_ok(raw_number(&raw, LIGI_SERVED_PACK_SIZE, self->pack));
    uint64_t end;
    assert_ok(ligi_served_number_get(raw.reply_body, raw.reply.body_bytes, &end));
    assert_int_equal(end, self->offset + sizeof team_data);
    expect_denied(raw_read(&raw, self->pack, 0, 64), "'bob'",
                  "'read'"); /* the header has the key */
    expect_denied(raw_read(&raw, self->pack, self->offset, sizeof team_data + 1), "'bob'", "read");
    assert_status(raw_read(&raw, self->pack, UINT64_MAX - 8, 64), LIG_E_CORRUPT);
    expect_denied(raw_read(&raw, self->other_pack, self->other_offset, 64), "'bob'", "read");
    expect_denied(raw_number(&raw, LIGI_SERVED_DESCRIPTOR, self->pack), "'bob'", "'descriptor'");
    raw_close(&raw);
}

static void test_ids_names_stamps_and_shutdown(void **state)
{
    fixture *self = *state;
    raw_client raw;
    open_raw(self, &raw, KEY("a"));
    assert_status(raw_resolve(&raw, NULL, self->other_id), LIG_E_NOTFOUND);
    expect_denied(raw_resolve(&raw, "other/x", 0), "'alice'", "'other/x'");
    expect_denied(raw_resolve(&raw, "other/none", 0), "'alice'", "'other/none'");
    expect_denied(raw_ask_text(&raw, LIGI_SERVED_STAMPS, "save"), "'alice'", "'time stamps'");
    expect_denied(raw_ask_text(&raw, LIGI_SERVED_CLEAR_STAMPS, ""), "'alice'", "stamps");
    expect_denied(raw_ask(&raw, LIGI_SERVED_SHUTDOWN, NULL), "'alice'", "'shutdown'");
    expect_denied(raw_number(&raw, LIGI_SERVED_CHECK, 0), "'alice'", "'check'");
    expect_denied(raw_ask_text(&raw, LIGI_SERVED_LOCK, "other/lock"), "'alice'", "'other/lock'");
    assert_ok(raw_ask(&raw, LIGI_SERVED_INFO, NULL));
    ligi_served_info info;
    assert_ok(ligi_served_info_get(raw.reply_body, raw.reply.body_bytes, &info));
    assert_null(strstr(info.uri, self->folder));
    assert_null(strstr(info.description, self->folder));
    ligi_writer body = {0};
    ligi_served_watch_put(&body, &(ligi_served_watch){.since = 0, .limit = 100});
    assert_ok(raw_ask(&raw, LIGI_SERVED_WATCH, &body));
    ligi_writer_fini(&body);
    for (size_t i = 0; i + 5 <= raw.reply.body_bytes; i++)
        assert_memory_not_equal(raw.reply_body + i, "other", 5);
    raw_close(&raw);
}

/* Connects through shared memory, by the card that another connection got. */
static void open_shm(raw_client *raw, const raw_client *from, const uint8_t *pass)
{
    ligi_writer bytes = {0};
    ligi_served_hello hello = {.pid = 9, .host = "testing"};
    memset(hello.client, 9, sizeof hello.client);
    memcpy(hello.pass, pass, sizeof hello.pass);
    ligi_served_hello_put(&bytes, &hello);
    raw_connect_how(raw, NULL,
                    (ligi_connect){.card = from->welcome.card,
                                   .card_bytes = from->welcome.card_bytes,
                                   .only = "shm",
                                   .hello = bytes.data,
                                   .hello_bytes = bytes.bytes});
    ligi_writer_fini(&bytes);
}

/* A pass works once, and while the session lasts that it was given to. */
static void test_a_pass_works_once(void **state)
{
    fixture *self = *state;
    static const uint8_t none[LIGI_SERVED_PASS_BYTES];
    uint8_t wrong[LIGI_SERVED_PASS_BYTES], late[LIGI_SERVED_PASS_BYTES];
    raw_client tcp, raw, shm;
    open_raw(self, &tcp, KEY("b"));
    memcpy(wrong, tcp.welcome.pass, sizeof wrong);
    wrong[31] ^= 1;
    const uint8_t *const refused[] = {none, wrong};
    for (size_t i = 0; i < 2; i++) {
        open_shm(&raw, &tcp, refused[i]);
        assert_true(raw.lost && !raw.met);
        assert_non_null(strstr(raw.sentence, "token"));
        raw_close(&raw);
    }
    open_shm(&shm, &tcp, tcp.welcome.pass);
    assert_true(shm.met);
    expect_denied(raw_resolve(&shm, "other/x", 0), "'bob'", "'other/x'");
    assert_memory_equal(shm.welcome.pass, none, sizeof none);
    open_shm(&raw, &tcp, tcp.welcome.pass);
    assert_true(raw.lost && !raw.met);
    raw_close(&raw);
    raw_close(&tcp);
    assert_ok(raw_resolve(&shm, "team/a", 0));
    open_raw(self, &tcp, KEY("b"));
    memcpy(late, tcp.welcome.pass, sizeof late);
    write_file(self->secrets, "root admin " KEY("r") "\n");
    assert_ok(lig_server_reload(self->server));
    raw_expect_lost(&tcp);
    raw_expect_lost(&shm);
    open_shm(&raw, &tcp, late);
    assert_true(raw.lost && !raw.met);
    raw_close(&raw);
    raw_close(&tcp);
    raw_close(&shm);
}

static lig_status raw_alias(raw_client *raw, const char *alias, const char *model)
{
    ligi_writer body = {0};
    ligi_served_alias_put(&body, &(ligi_served_alias){alias, model});
    lig_status status = raw_ask(raw, LIGI_SERVED_ALIAS, &body);
    ligi_writer_fini(&body);
    return status;
}

/* Requests are done once per client and role: the same numbers of another role are others. */
static void test_what_was_done_is_known_by_role(void **state)
{
    fixture *self = *state;
    raw_client root, alice;
    lig_model *model;
    open_raw(self, &root, KEY("r"));
    assert_ok(raw_alias(&root, "best", "other/x"));
    open_raw(self, &alice, KEY("a"));
    assert_ok(raw_alias(&alice, "team/best", "team/a"));
    assert_ok(lig_store_model(self->local, "team/best", &model));
    lig_model_destroy(model);
    raw_close(&alice);
    open_raw(self, &alice, KEY("a")); /* it begins with the same number again */
    assert_ok(raw_alias(&alice, "team/again", "team/a"));
    assert_status(lig_store_model(self->local, "team/again", &model), LIG_E_NOTFOUND);
    raw_close(&alice);
    raw_close(&root);
}

static int needed(void *context)
{
    const raw_client *raw = context;
    return raw->needs > 0 || raw->lost || raw->answered;
}

/* Whoever names the hash of a tensor must show its bytes. */
static void test_a_hash_gives_away_nothing(void **state)
{
    fixture *self = *state;
    raw_client raw;
    lig_tensor tensor = tensor_of("w", NULL);
    ligi_served_save save = {
        .name = "team/stolen", .tensors = &tensor, .count = 1, .meta = "", .structure = ""};
    ligi_writer body = {0};
    open_raw(self, &raw, KEY("a"));
    ligi_served_save_put(&body, &save);
    raw_send(&raw, (ligi_served_head){.op = LIGI_SERVED_SAVE, .id = 1, .number = 1}, &body, NULL,
             0);
    ligi_writer_fini(&body);
    assert_ok(ligi_net_wait(raw.net, needed, &raw, RAW_NS));
    assert_int_equal(raw.needs, 1);
    ligi_served_need need = {0};
    assert_ok(ligi_served_need_get(raw.need_body, raw.need.body_bytes, &need));
    assert_int_equal(need.kind, LIGI_SERVED_NEED_BYTES);
    ligi_served_need_fini(&need);
    raw_close(&raw);
}

/* A part tells where its bytes are; a forged one could name those of others. */
static void test_parts_of_others_are_not_joined(void **state)
{
    fixture *self = *state;
    lig_store *alice = client(self, KEY("a"));
    lig_part *part = NULL, *mine = NULL;
    lig_tensor tensor = tensor_of("w", other_data);
    lig_save_options options = LIG_SAVE_INIT;
    lig_part_data data;
    options.part = &part;
    assert_ok(lig_store_save(self->local, "other/p", &tensor, 1, &options));
    assert_ok(lig_part_bytes(part, &data.data, &data.bytes));
    expect_denied(lig_store_join(alice, "team/p", &data, 1, NULL), "'alice'", "'join'");
    options.part = &mine;
    assert_ok(lig_store_save(alice, "team/p", &tensor, 1, &options));
    assert_ok(lig_part_bytes(mine, &data.data, &data.bytes));
    assert_ok(lig_store_join(alice, "team/p", &data, 1, NULL));
    lig_part_close(mine, alice);
    lig_part_close(part, self->local);
    lig_store_close(alice);
}

static void test_strangers_stay_out(void **state)
{
    fixture *self = *state;
    lig_store *store = NULL;
    assert_status(open_as(self, KEY("x"), "&transport=tcp", &store), LIG_E_DENIED);
    assert_status(open_as(self, roles_text, "", &store), LIG_E_INVALID);
    assert_says("4 roles");
}

/* --- another file --- */

static void test_a_reload_ends_the_sessions_of_changed_roles(void **state)
{
    fixture *self = *state;
    raw_client alice, bob, root;
    lig_store *store = NULL;
    open_raw(self, &alice, KEY("a"));
    open_raw(self, &bob, KEY("b"));
    open_raw(self, &root, KEY("r"));
    write_file(self->secrets,
               "bob read " KEY("b") " other/*\nroot admin " KEY("r") "\nnew read " KEY("n") "\n");
    assert_ok(lig_server_reload(self->server));
    raw_expect_lost(&alice);
    raw_expect_lost(&bob);
    assert_ok(raw_ask(&root, LIGI_SERVED_INFO, NULL));
    assert_status(open_as(self, KEY("a"), "", &store), LIG_E_DENIED);
    store = client(self, KEY("b"));
    lig_tensor tensor = tensor_of("w", back);
    assert_ok(lig_store_load(store, "other/x", &tensor, 1));
    expect_denied(lig_store_load(store, "team/a", &tensor, 1), "'bob'", "'team/a'");
    lig_store_close(store);
    lig_store_close(client(self, KEY("n")));
    write_file(self->secrets, "root admin too-short\n");
    assert_status(lig_server_reload(self->server), LIG_E_INVALID);
    assert_ok(raw_ask(&root, LIGI_SERVED_INFO, NULL));
    lig_store_close(client(self, KEY("n")));
    raw_close(&alice);
    raw_close(&bob);
    raw_close(&root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_roles_save_and_read_what_they_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_the_models_of_the_prefix_exist, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_search_finds_only_the_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_events_of_others_are_not_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sharing_stays_inside_the_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shared_memory_needs_a_pass, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ranges_of_others_are_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ids_names_stamps_and_shutdown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pass_works_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_done_is_known_by_role, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_hash_gives_away_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts_of_others_are_not_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strangers_stay_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reload_ends_the_sessions_of_changed_roles, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
