#include "file_log_scene.h"

static void make_segments(log_scene *scene, uint64_t count)
{
    for (uint64_t i = 1; i <= count; i++) {
        int fd = open(log_scene_path(scene, "segment", i), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, &i, sizeof i, 0), sizeof i);
        close(fd);
    }
}

static ligi_clog_file *take(log_scene *scene, uint64_t number)
{
    ligi_clog_file *file;

    assert_ok(ligi_clog_folder_file(&scene->log.folder, LIGI_NAME_SEGMENT, number, &file));
    return file;
}

static void assert_holds(const ligi_clog_file *file, uint64_t number)
{
    uint64_t found;

    assert_int_equal(pread(file->fd, &found, sizeof found, 0), sizeof found);
    assert_int_equal(found, number);
}

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void one_descriptor_for_all(void **state)
{
    log_scene *scene = *state;

    make_segments(scene, 1);
    ligi_clog_file *one = take(scene, 1), *other = take(scene, 1);
    assert_ptr_equal(one, other);
    ligi_clog_folder_release(&scene->log.folder, one);
    assert_holds(other, 1);
    ligi_clog_folder_release(&scene->log.folder, other);
    ligi_clog_file *again = take(scene, 1);
    assert_ptr_equal(again, other);
    ligi_clog_folder_release(&scene->log.folder, again);
}

/* More files than the folder lists, and one in use is the oldest of them. */
static void a_file_in_use_outlasts_the_list(void **state)
{
    log_scene *scene = *state;

    make_segments(scene, LIGI_CLOG_FILES + 1);
    ligi_clog_file *held = take(scene, 1);
    for (uint64_t i = 2; i <= LIGI_CLOG_FILES + 1; i++) {
        ligi_clog_file *file = take(scene, i);
        assert_holds(file, i);
        ligi_clog_folder_release(&scene->log.folder, file);
    }
    assert_holds(held, 1);
    int fd = held->fd;
    ligi_clog_folder_release(&scene->log.folder, held);
    assert_false(is_open(fd));
}

static void a_forgotten_file_is_opened_again(void **state)
{
    log_scene *scene = *state;
    const uint64_t changed = 77;

    make_segments(scene, 1);
    ligi_clog_file *before = take(scene, 1);
    const char *path = log_scene_path(scene, "segment", 1);
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(pwrite(fd, &changed, sizeof changed, 0), sizeof changed);
    close(fd);
    ligi_clog_folder_forget(&scene->log.folder, LIGI_NAME_SEGMENT, UINT64_MAX);
    ligi_clog_file *after = take(scene, 1);
    assert_holds(after, changed);
    assert_holds(before, 1);
    fd = before->fd;
    ligi_clog_folder_release(&scene->log.folder, before);
    assert_false(is_open(fd));
    ligi_clog_folder_release(&scene->log.folder, after);
}

/* Who can tell from the bytes may get a file that was removed, but not for ever: it takes up
 * space. */
static void a_removed_file_is_closed(void **state)
{
    log_scene *scene = *state;
    ligi_clog_folder *folder = &scene->log.folder;
    ligi_clog_file *file = NULL;
    lig_status status = LIG_OK;
    int times = 0;

    make_segments(scene, 1);
    ligi_clog_folder_release(folder, take(scene, 1));
    assert_int_equal(unlink(log_scene_path(scene, "segment", 1)), 0);
    for (; status == LIG_OK && times < 1000; times++) {
        status = ligi_clog_folder_file_once(folder, LIGI_NAME_SEGMENT, 1, &file);
        if (status != LIG_OK)
            continue;
        assert_holds(file, 1);
        ligi_clog_folder_release(folder, file);
    }
    assert_int_equal(status, LIG_E_NOTFOUND);
    assert_true(times > 1 && times <= 100);
    make_segments(scene, 1);
    ligi_clog_folder_release(folder, take(scene, 1));
    assert_int_equal(unlink(log_scene_path(scene, "segment", 1)), 0);
    status = ligi_clog_folder_file(folder, LIGI_NAME_SEGMENT, 1, &file);
    assert_int_equal(status, LIG_E_NOTFOUND);
}

/* Another process has removed the files: whatever is opened next, they take up no space. */
static void removed_files_are_closed_with_the_next(void **state)
{
    log_scene *scene = *state;
    ligi_clog_folder *folder = &scene->log.folder;
    int fds[3];

    make_segments(scene, 4);
    for (uint64_t i = 0; i < 3; i++) {
        ligi_clog_file *file = take(scene, i + 1);
        fds[i] = file->fd;
        ligi_clog_folder_release(folder, file);
    }
    assert_int_equal(unlink(log_scene_path(scene, "segment", 1)), 0);
    assert_int_equal(unlink(log_scene_path(scene, "segment", 2)), 0);
    ligi_clog_file *held = take(scene, 4);
    assert_true(!is_open(fds[0]) || held->fd == fds[0]); /* a number is used again */
    assert_true(!is_open(fds[1]) || held->fd == fds[1]);
    assert_true(is_open(fds[2]));
    ligi_clog_folder_release(folder, held);
}

static uint64_t blocks_of(const ligi_clog_file *file)
{
    struct stat info;

    assert_int_equal(fstat(file->fd, &info), 0);
    return (uint64_t)info.st_blocks * 512;
}

/* Room behind the record for what frees space: more with more to free, and of no size. */
static void room_is_kept(void **state)
{
    log_scene *scene = *state;
    ligi_clog_room room = {.end = 4096, .keep = 1 << 20};

    make_segments(scene, 1);
    ligi_clog_file *file = take(scene, 1);
    assert_ok(ligi_clog_make_room(&scene->log.folder, file, &room));
    off_t size = lseek(file->fd, 0, SEEK_END);
    assert_in_range(size, 4096, 1 << 19);
    int kept = fallocate(file->fd, FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
    assert_true(!kept || blocks_of(file) >= room.end + room.keep);
    room.keep =
        UINT64_C(1) << 63; /* more than a file can have: refused, and not for lack of room */
    assert_ok(ligi_clog_make_room(&scene->log.folder, file, &room));
    ligi_clog_folder_release(&scene->log.folder, file);
}

/* Another process has given the room back: it is taken again. */
static void room_that_was_given_back_is_kept_again(void **state)
{
    log_scene *scene = *state;
    const ligi_clog_folder *folder = &scene->log.folder;

    make_segments(scene, 1);
    ligi_clog_file *file = take(scene, 1);
    assert_ok(ligi_clog_keep(folder, file, 1 << 20));
    int kept = blocks_of(file) >= 1 << 20; /* not every file system can do that */
    assert_int_equal(truncate(log_scene_path(scene, "segment", 1), sizeof(uint64_t)), 0);
    assert_true(blocks_of(file) < 1 << 20);
    assert_ok(ligi_clog_keep(folder, file, 1 << 20));
    assert_true(!kept || blocks_of(file) >= 1 << 20);
    ligi_clog_folder_release(&scene->log.folder, file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(one_descriptor_for_all),
        log_test(a_file_in_use_outlasts_the_list),
        log_test(a_forgotten_file_is_opened_again),
        log_test(a_removed_file_is_closed),
        log_test(removed_files_are_closed_with_the_next),
        log_test(room_is_kept),
        log_test(room_that_was_given_back_is_kept_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
