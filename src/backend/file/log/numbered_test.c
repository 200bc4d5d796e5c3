#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_start.h"
#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct scene { /* two hosts' views of one log */
    char folder[64];
    int fd;
    ligi_file_log one, other;
} scene;

static int start(void **state)
{
    scene *self = calloc(1, sizeof *self);
    ligi_numbering numbering = {.id = {1}, .from = 1};

    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-XXXXXX");
    if (mkdtemp(self->folder) == NULL)
        return -1;
    self->fd = open(self->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    self->one.head.fd = self->other.head.fd = -1;
    *state = self;
    return ligi_clog_folder_open(&self->one.folder, self->fd, self->folder, 0, 0) != LIG_OK ||
           ligi_clog_folder_open(&self->other.folder, self->fd, self->folder, 0, 0) != LIG_OK ||
           ligi_numbering_make(&self->one.folder, &numbering) != LIG_OK ||
           ligi_file_log_numbering(&self->one) != LIG_OK ||
           ligi_file_log_numbering(&self->other) != LIG_OK;
}

static int stop(void **state)
{
    scene *self = *state;
    char command[96];

    ligi_clog_folder_close(&self->one.folder);
    ligi_clog_folder_close(&self->other.folder);
    close(self->fd);
    snprintf(command, sizeof command, "rm -r %s", self->folder);
    int failed = system(command);
    free(self);
    return failed;
}

static lig_status count_record(void *context, const uint8_t *record, const ligi_clog_header *header,
                               const ligi_clog_position *at)
{
    (void)record, (void)at;
    *(uint64_t *)context = header->version;
    return LIG_OK;
}

static lig_status read_to_end(ligi_file_log *log, ligi_clog_position *at)
{
    uint64_t last = 0;
    ligi_clog_end end;

    LIG_TRY(ligi_file_log_read(log, at, count_record, &last, &end));
    return end == LIGI_CLOG_AT_END ? LIG_OK : LIG_E_INTERNAL;
}

static lig_status append(ligi_file_log *log, ligi_clog_position *at, const char *value)
{
    const lig_catalog_op op = {"k", 1, value, strlen(value)};
    const lig_catalog_edit edit = {.ops = &op, .op_count = 1};
    ligi_clog_header header = {.version = at->version + 1, .previous = at->chain};
    ligi_writer record = {0};

    lig_status status = ligi_clog_record_put(&record, &edit, &header);
    if (status == LIG_OK)
        status = ligi_file_log_reserve(log, at, header.bytes, 0, NULL, 0);
    if (status == LIG_OK)
        status = ligi_file_log_append(log, at, record.data, &header);
    ligi_writer_fini(&record);
    return status;
}

static size_t count_temporaries(const scene *self)
{
    char command[128], answer[16] = "";

    snprintf(command, sizeof command, "ls %s/log | grep -c tmp-", self->folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(answer, sizeof answer, pipe));
    pclose(pipe);
    return (size_t)atoi(answer);
}

static void numbers_are_given_once(void **state)
{
    scene *self = *state;
    ligi_clog_position one, other;

    assert_ok(ligi_file_log_first(&self->one, &one));
    assert_ok(ligi_file_log_first(&self->other, &other));
    assert_ok(read_to_end(&self->one, &one));
    assert_ok(read_to_end(&self->other, &other));
    assert_ok(append(&self->one, &one, "first"));
    assert_status(append(&self->other, &other, "second"), LIG_E_BUSY);
    assert_ok(read_to_end(&self->other, &other));
    assert_int_equal(other.version, 1);
    assert_int_equal(other.chain, one.chain);
    assert_ok(append(&self->other, &other, "second"));
    assert_int_equal(count_temporaries(self), 0);
    assert_int_equal(ligi_file_log_news(&self->one, 1), 1);
    assert_int_equal(ligi_file_log_news(&self->one, 2), 0);
}

/* The server did it and its answer was lost: the client asks again. */
static void lost_replies_are_recognized(void **state)
{
    scene *self = *state;
    const ligi_clog_folder *folder = &self->one.folder;
    ligi_segment_header header = {.first = 1}, same = {.first = 1};
    ligi_numbered_draft draft, loser;
    char final[LIGI_CLOG_NAME_BYTES];
    int late;

    assert_ok(ligi_numbered_draft_make(folder, &header, "the same", 8, &draft));
    assert_ok(ligi_numbered_draft_make(folder, &same, "the same", 8, &loser));
    ligi_clog_folder_name(LIGI_NAME_SEGMENT, 1, final);
    assert_int_equal(linkat(folder->fd, draft.name, folder->fd, final, 0), 0);
    assert_ok(ligi_numbered_draft_link(folder, &draft, &late));
    assert_int_equal(late, 0);
    assert_status(ligi_numbered_draft_link(folder, &loser, &late), LIG_E_BUSY);
    assert_int_equal(count_temporaries(self), 0);
}

/* A checkpoint of the version, of which only the name counts here. */
static void name_checkpoint(const scene *self, uint64_t version)
{
    char name[LIGI_CLOG_NAME_BYTES];

    ligi_clog_folder_name(LIGI_NAME_CHECKPOINT, version, name);
    int fd = openat(self->one.folder.fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    close(fd);
}

/* Stopped for hours in front of link(2): the number has been another's, and was removed. */
static void paused_writers_do_not_commit(void **state)
{
    scene *self = *state;
    ligi_clog_position one, other;

    assert_ok(ligi_file_log_first(&self->one, &one));
    assert_ok(read_to_end(&self->one, &one));
    other = one;
    ligi_clog_position stale = one;
    for (int i = 0; i < 4; i++)
        assert_ok(append(&self->other, &other, "theirs"));
    name_checkpoint(self, 3);
    assert_ok(ligi_clog_folder_remove(&self->one.folder, LIGI_NAME_SEGMENT, 1));
    atomic_store(&self->one.confirmed_ns, 1);
    assert_status(append(&self->one, &stale, "ours"), LIG_E_BUSY);
    assert_ok(ligi_clog_folder_remove(&self->one.folder, LIGI_NAME_SEGMENT, 2));
    ligi_clog_folder_forget(&self->one.folder, LIGI_NAME_SEGMENT, UINT64_MAX);
    stale = one;
    assert_status(append(&self->one, &stale, "ours"), LIG_E_IO);
    assert_says("unknown");
    /* And nobody whose view is as old takes it for a commit. */
    stale = one;
    assert_status(read_to_end(&self->one, &stale), LIG_E_CORRUPT);
    assert_says("has advanced");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_are_given_once, start, stop),
        cmocka_unit_test_setup_teardown(lost_replies_are_recognized, start, stop),
        cmocka_unit_test_setup_teardown(paused_writers_do_not_commit, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
