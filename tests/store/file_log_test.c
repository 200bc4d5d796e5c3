#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_start.h"
#include "backend/file/log/log_sync.h"
#include "file_log_scene.h"

#define SECOND INT64_C(1000000000)
#define WRITERS_MOST 40

typedef struct log_user {
    log_scene *scene;
    ligi_clog_position at;
    uint64_t seen; /* the last version visited */
    size_t count;
    int appends;      /* of append_some */
    uint64_t segment; /* of the last one visited */
} log_user;

static lig_status visit(void *context, const uint8_t *record, const ligi_clog_header *header,
                        const ligi_clog_position *at)
{
    log_user *self = context;
    size_t next = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_item item;

    assert_int_equal(header->version, at->version + 1);
    assert_int_equal(header->previous, at->chain);
    assert_true(ligi_clog_item_next(record, header->bytes, &next, &item));
    assert_int_equal(item.value_bytes, header->version % 700);
    self->seen = header->version;
    self->segment = at->segment;
    self->count++;
    return LIG_OK;
}

static void start(log_user *self, log_scene *scene)
{
    *self = (log_user){.scene = scene};
    self->at.chain = ligi_clog_chain_start(scene->log.id);
    assert_ok(ligi_file_log_create(&scene->log, &self->at));
    assert_ok(ligi_file_log_first(&scene->log, &self->at));
}

static void make_record(const log_user *self, ligi_writer *record, ligi_clog_header *header)
{
    static uint8_t value[700];
    memset(value, 0x5A, sizeof value);
    const lig_catalog_op op = {"key", 3, value, (self->at.version + 1) % 700};
    const lig_catalog_edit edit = {.ops = &op, .op_count = 1};

    *header = (ligi_clog_header){.version = self->at.version + 1,
                                 .previous = self->at.chain,
                                 .synced = ligi_head_synced(&self->scene->log.head)};
    assert_ok(ligi_clog_record_put(record, &edit, header));
}

static lig_status sync_to(ligi_file_log *log, uint64_t version, uint32_t epoch)
{
    const ligi_clog_durable wanted = {.version = version, .epoch = epoch};

    return ligi_file_log_sync(log, &wanted, 60 * SECOND);
}

/* Appends a record at the tail; `sync`: and makes it durable. */
static void append(log_user *self, int sync)
{
    ligi_file_log *log = &self->scene->log;
    ligi_writer record = {0};
    ligi_clog_header header;

    assert_ok(ligi_head_take(&log->head, LIGI_HEAD_WRITE, SECOND));
    assert_ok(ligi_file_log_tail(log, &self->at, &(ligi_clog_visitor){visit, self}));
    ligi_head_segment_set(&log->head, self->at.segment);
    make_record(self, &record, &header);
    assert_ok(ligi_file_log_reserve(log, &self->at, header.bytes, 0, NULL, SECOND));
    assert_ok(ligi_file_log_append(log, &self->at, record.data, &header));
    ligi_head_append(&log->head, self->at.version);
    ligi_head_release(&log->head, LIGI_HEAD_WRITE);
    ligi_writer_fini(&record);
    if (sync)
        assert_ok(sync_to(log, self->at.version, ligi_head_epoch(&log->head)));
}

/* Reads the log from its start: the last version, and how it ended. */
static uint64_t read_all(log_scene *scene, ligi_clog_end *end)
{
    log_user reader = {.scene = scene};

    assert_ok(ligi_file_log_first(&scene->log, &reader.at));
    scene->log.thorough = 1;
    lig_status status = ligi_file_log_read(&scene->log, &reader.at, visit, &reader, end);
    scene->log.thorough = 0;
    if (status == LIG_E_CORRUPT)
        *end = LIGI_CLOG_DAMAGED;
    else
        assert_ok(status);
    return reader.at.version;
}

static size_t count_segments(const log_scene *scene)
{
    uint64_t *numbers;
    size_t count;

    assert_ok(ligi_clog_folder_list(&scene->log.folder, LIGI_NAME_SEGMENT, &numbers, &count));
    free(numbers);
    return count;
}

/* Segments of 4 KiB follow each other; reading begins anywhere. */
static void append_and_read(void **state)
{
    log_scene *scene = *state;
    ligi_clog_end end;
    log_user self;

    start(&self, scene);
    assert_int_equal(read_all(scene, &end), 0);
    for (int i = 0; i < 100; i++)
        append(&self, 1);
    assert_int_equal(read_all(scene, &end), 100);
    assert_int_equal(end, LIGI_CLOG_AT_END);
    assert_in_range(count_segments(scene), 3, 20);
    assert_int_equal(ligi_head_synced(&scene->log.head), 100);
    for (uint64_t version = 0; version < 100; version += 7) {
        log_user reader = {.scene = scene};
        assert_ok(ligi_file_log_before(&scene->log, version, &reader.at));
        assert_true(reader.at.version <= version);
        assert_ok(ligi_file_log_read(&scene->log, &reader.at, visit, &reader, &end));
        assert_int_equal(reader.at.version, 100);
        assert_int_equal(reader.at.chain, self.at.chain);
        assert_int_equal(reader.at.offset, self.at.offset);
    }
    ligi_clog_position at = {.version = 100, .chain = self.at.chain};
    assert_ok(ligi_file_log_find(&scene->log, &at));
    assert_int_equal(at.offset, self.at.offset);
    at.chain++;
    assert_status(ligi_file_log_find(&scene->log, &at), LIG_E_CORRUPT);
}

/* Unacknowledged bytes are cut, wherever they end; writing continues after them. */
static void torn_tails_are_cut(void **state)
{
    log_scene *scene = *state;
    ligi_clog_end end;
    log_user self;

    start(&self, scene);
    append(&self, 1);
    for (uint64_t cut = 1; cut < 160; cut += 5) {
        ligi_writer record = {0};
        ligi_clog_header header;
        make_record(&self, &record, &header);
        if (cut + 8 > record.bytes) { /* only zeros would be missing */
            ligi_writer_fini(&record);
            break;
        }
        int fd = open(log_scene_path(scene, "segment", 1), O_WRONLY | O_CLOEXEC);
        /* First its end, then its start: sectors are written in any order. */
        off_t at = (off_t)self.at.offset + (cut % 2 ? 0 : (off_t)(record.bytes - cut));
        assert_int_equal(pwrite(fd, record.data + (cut % 2 ? 0 : record.bytes - cut), cut, at),
                         (ssize_t)cut);
        close(fd);
        ligi_writer_fini(&record);
        uint64_t before = self.at.version;
        assert_int_equal(read_all(scene, &end), before);
        assert_true(end == LIGI_CLOG_CUT || end == LIGI_CLOG_AT_END);
        append(&self, 1);
        assert_int_equal(self.at.version, before + 1);
        assert_int_equal(read_all(scene, &end), before + 1);
        assert_int_equal(end, LIGI_CLOG_AT_END);
    }
}

/* A whole record that follows another predecessor never counts. */
static void stale_records_do_not_fit(void **state)
{
    log_scene *scene = *state;
    ligi_clog_end end;
    log_user self;
    ligi_writer record = {0};
    ligi_clog_header header;

    start(&self, scene);
    append(&self, 1);
    make_record(&self, &record, &header);
    header.previous++;
    record.bytes = 0;
    const lig_catalog_op op = {"key", 3, "", 0};
    assert_ok(
        ligi_clog_record_put(&record, &(lig_catalog_edit){.ops = &op, .op_count = 1}, &header));
    int fd = open(log_scene_path(scene, "segment", 1), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, record.data, record.bytes, (off_t)self.at.offset),
                     (ssize_t)record.bytes);
    close(fd);
    ligi_writer_fini(&record);
    assert_int_equal(read_all(scene, &end), 1);
    assert_int_equal(end, LIGI_CLOG_CUT);
    append(&self, 1);
    assert_int_equal(read_all(scene, &end), 2);
    assert_int_equal(end, LIGI_CLOG_AT_END);
}

/* Of ten records each is damaged in turn. The head, or a later record, tells that it was synced;
 * then nothing is cut and nothing is written. */
static void damaged_records_are_not_cut(void **state)
{
    log_scene *scene = *state;
    char path[128], head[128];
    uint64_t starts[10];
    ligi_clog_end end;
    log_user self;

    start(&self, scene);
    snprintf(path, sizeof path, "%s", log_scene_path(scene, "segment", 1));
    snprintf(head, sizeof head, "%s/log/head", scene->place);
    for (int i = 0; i < 10; i++) {
        starts[i] = self.at.offset;
        append(&self, 1);
    }
    for (int with_head = 1; with_head >= 0; with_head--) {
        if (!with_head) {
            log_scene_close(scene);
            assert_int_equal(unlink(head), 0);
            log_scene_open(scene);
        }
        for (int i = 0; i < 10; i++) {
            log_user writer = {.scene = scene};
            flip_byte(path, (off_t)starts[i] + 20 + 7 * i, 1);
            assert_int_equal(read_all(scene, &end), i);
            /* Records 8 and 9 were written when 8, but not 9 and 10, was known to be synced. */
            int witnessed = with_head || i < 9;
            assert_int_equal(end, witnessed ? LIGI_CLOG_DAMAGED : LIGI_CLOG_CUT);
            assert_ok(ligi_file_log_first(&scene->log, &writer.at));
            assert_ok(ligi_head_take(&scene->log.head, LIGI_HEAD_WRITE, SECOND));
            if (witnessed) {
                assert_status(ligi_file_log_tail(&scene->log, &writer.at,
                                                 &(ligi_clog_visitor){visit, &writer}),
                              LIG_E_CORRUPT);
                assert_says("damaged");
            }
            ligi_head_release(&scene->log.head, LIGI_HEAD_WRITE);
            flip_byte(path, (off_t)starts[i] + 20 + 7 * i, 1);
            assert_int_equal(read_all(scene, &end), 10);
        }
    }
}

/* A record is missing in the middle of the log, where a later segment follows. */
static void damage_before_the_last_segment(void **state)
{
    log_scene *scene = *state;
    ligi_clog_end end;
    log_user self;

    start(&self, scene);
    while (count_segments(scene) < 3)
        append(&self, 0);
    uint64_t last = self.at.version;
    flip_byte(log_scene_path(scene, "segment", 1), 64 + 8, 1);
    assert_int_equal(read_all(scene, &end), 0);
    assert_int_equal(end, LIGI_CLOG_DAMAGED);
    flip_byte(log_scene_path(scene, "segment", 1), 64 + 8, 1);
    assert_int_equal(read_all(scene, &end), last);
    assert_int_equal(truncate(log_scene_path(scene, "segment", 1), 100), 0);
    assert_int_equal(read_all(scene, &end), 0);
    assert_int_equal(end, LIGI_CLOG_DAMAGED);
    flip_byte(log_scene_path(scene, "segment", 1), 20, 1);
    log_user reader = {.scene = scene};
    assert_status(ligi_file_log_first(&scene->log, &reader.at), LIG_E_CORRUPT);
}

/* The sync of a segment failed: what was not durable is written again into a new one, and then is
 * durable for those who wait for it, too. */
static void poisoned_segments_are_replaced(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    ligi_clog_end end;
    log_user self;

    scene->log.segment_bytes = 1 << 20;
    start(&self, scene);
    for (int i = 0; i < 5; i++)
        append(&self, 1);
    uint64_t durable = self.at.offset;
    append(&self, 0);
    append(&self, 0);
    uint32_t epoch = ligi_head_epoch(head);
    ligi_head_poison(head, 1);
    assert_status(sync_to(&scene->log, 7, epoch), LIG_E_BUSY);
    assert_ok(sync_to(&scene->log, 5, epoch));
    size_t visited = self.count;
    append(&self, 1);
    assert_int_equal(self.at.segment, 6);
    assert_int_equal(self.count, visited + 2); /* 6 and 7 lie elsewhere now */
    assert_int_equal(self.segment, 6);
    assert_int_equal(ligi_head_poisoned(head), 0);
    assert_int_equal(ligi_head_synced(head), 8);
    assert_ok(sync_to(&scene->log, 7, epoch));
    assert_int_equal(count_segments(scene), 2);
    assert_int_equal(read_all(scene, &end), 8);
    assert_int_equal(end, LIGI_CLOG_AT_END);
    /* Records 6 and 7 of the old segment are superseded: they may be gone. */
    assert_int_equal(truncate(log_scene_path(scene, "segment", 1), (off_t)durable), 0);
    log_scene_close(scene);
    log_scene_open(scene);
    assert_int_equal(read_all(scene, &end), 8);
    append(&self, 1);
    assert_int_equal(read_all(scene, &end), 9);
}

/* A process that has a segment open notices that another one replaced it under its number. */
static void replaced_segments_are_opened_again(void **state)
{
    log_scene *scene = *state;
    ligi_clog_file *before, *after;
    struct stat one, two;
    log_user self;

    start(&self, scene);
    append(&self, 0);
    assert_ok(ligi_clog_segment_file(&scene->log, 1, &before));
    ligi_head_poison(&scene->log.head, 1);
    append(&self, 1);
    assert_int_equal(self.at.segment, 1);
    assert_ok(ligi_clog_segment_file(&scene->log, 1, &after));
    assert_int_equal(fstat(before->fd, &one), 0);
    assert_int_equal(fstat(after->fd, &two), 0);
    assert_int_equal(one.st_nlink, 0);
    assert_int_not_equal(one.st_ino, two.st_ino);
    ligi_clog_folder_release(&scene->log.folder, before);
    ligi_clog_folder_release(&scene->log.folder, after);
}

/* A commit that was published, and that the kernel dropped when the sync failed. */
static void lost_commits_are_not_durable(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    log_user self;

    scene->log.segment_bytes = 1 << 20;
    start(&self, scene);
    append(&self, 1);
    ligi_clog_position before = self.at;
    append(&self, 0);
    uint32_t epoch = ligi_head_epoch(head);
    int fd = open(log_scene_path(scene, "segment", 1), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, (uint8_t[64]){0}, 64, (off_t)before.offset), 64);
    close(fd);
    ligi_head_poison(head, 1);
    self.at = before;
    append(&self, 1);
    assert_int_equal(self.at.version, 2); /* another one */
    assert_status(sync_to(&scene->log, 2, epoch), LIG_E_IO);
    assert_ok(sync_to(&scene->log, 2, ligi_head_epoch(head)));
}

/* Killed in the middle of its sync; the records that it was to sync are written again. */
static void killed_syncs_are_made_again(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    log_user self;

    scene->log.segment_bytes = 1 << 20;
    start(&self, scene);
    append(&self, 0);
    uint32_t epoch = ligi_head_epoch(head);
    assert_ok(ligi_head_take(head, LIGI_HEAD_SYNC, 0));
    assert_true(ligi_head_sync_begin(head, 1));
    ligi_head_release(head, LIGI_HEAD_SYNC);
    assert_status(sync_to(&scene->log, 1, epoch), LIG_E_BUSY);
    append(&self, 1);
    assert_ok(sync_to(&scene->log, 1, epoch));
    assert_int_equal(ligi_head_poisoned(head), 0);
    assert_int_equal(ligi_head_synced(head), 2);
}

/* The process that made the segment may have been killed before it synced the folder. */
static void a_sync_makes_the_name_durable(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    log_user self;

    start(&self, scene);
    assert_int_equal(ligi_head_named(head), self.at.segment);
    ligi_head_rolling(head);
    assert_int_equal(ligi_head_named(head), 0);
    append(&self, 1);
    assert_int_equal(ligi_head_named(head), self.at.segment);
}

static void *append_some(void *context)
{
    log_user *self = context;

    for (int i = 0; i < self->appends; i++)
        append(self, 1);
    return NULL;
}

static void append_at_once(log_scene *scene, int writers, int appends)
{
    log_user users[WRITERS_MOST];
    pthread_t threads[WRITERS_MOST];
    ligi_clog_end end;

    start(&users[0], scene);
    users[0].appends = appends;
    for (int i = 1; i < writers; i++)
        users[i] = users[0];
    for (int i = 0; i < writers; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, append_some, &users[i]), 0);
    for (int i = 0; i < writers; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(read_all(scene, &end), writers * appends);
    assert_int_equal(end, LIGI_CLOG_AT_END);
    assert_int_equal(ligi_head_synced(&scene->log.head), writers * appends);
}

/* Several writers, each with a position of its own: one order for all, and every sync covers it. */
static void writers_share_the_log(void **state)
{
    append_at_once(*state, 3, 60);
}

/* More than the bits that tell apart who waits for which version. */
static void a_crowd_shares_the_log(void **state)
{
    append_at_once(*state, WRITERS_MOST, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(append_and_read),
        log_test(torn_tails_are_cut),
        log_test(stale_records_do_not_fit),
        log_test(damaged_records_are_not_cut),
        log_test(damage_before_the_last_segment),
        log_test(poisoned_segments_are_replaced),
        log_test(replaced_segments_are_opened_again),
        log_test(lost_commits_are_not_durable),
        log_test(killed_syncs_are_made_again),
        log_test(a_sync_makes_the_name_durable),
        log_test(writers_share_the_log),
        log_test(a_crowd_shares_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
