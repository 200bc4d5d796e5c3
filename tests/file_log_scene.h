/* A log in a fresh folder, for the tests of its parts. */
#ifndef FILE_LOG_SCENE_H
#define FILE_LOG_SCENE_H

#include "backend/file/log/log_checkpoint.h"
#include "file_volume.h"

typedef struct log_scene {
    char place[FOLDER_BYTES];
    int store_fd;
    ligi_file_log log;
} log_scene;

/* Opens log and head as one more process would; the state is the scene. */
static inline void log_scene_open(log_scene *self)
{
    char path[FOLDER_BYTES + 16];

    self->store_fd = open(self->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(self->store_fd >= 0);
    memset(&self->log, 0, sizeof self->log);
    self->log.segment_bytes = 4096;
    assert_ok(ligi_clog_folder_open(&self->log.folder, self->store_fd, self->place, 1, 0));
    snprintf(path, sizeof path, "%s/log/head", self->place);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_ok(ligi_head_open(&self->log.head, fd, self->place));
}

static inline void log_scene_close(log_scene *self)
{
    ligi_head_close(&self->log.head);
    ligi_clog_folder_close(&self->log.folder);
    close(self->store_fd);
}

static inline int log_scene_setup(void **state)
{
    log_scene *self = calloc(1, sizeof *self);

    snprintf(self->place, sizeof self->place, "/tmp/ligament-log-XXXXXX");
    if (mkdtemp(self->place) == NULL)
        return -1;
    log_scene_open(self);
    memset(self->log.id, 7, sizeof self->log.id);
    *state = self;
    return 0;
}

static inline int log_scene_teardown(void **state)
{
    log_scene *self = *state;

    log_scene_close(self);
    nftw(self->place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(self);
    return 0;
}

#define log_test(name) cmocka_unit_test_setup_teardown(name, log_scene_setup, log_scene_teardown)

/* The path of a segment or checkpoint. */
static inline const char *log_scene_path(const log_scene *self, const char *kind, uint64_t number)
{
    static char path[FOLDER_BYTES + 64];

    snprintf(path, sizeof path, "%s/log/%s-%016llx", self->place, kind, (unsigned long long)number);
    return path;
}

/* Changes a byte of a file; what it was. */
static inline uint8_t flip_byte(const char *path, off_t at, uint8_t bits)
{
    uint8_t byte = 0, flipped;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    flipped = byte ^ bits;
    assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
    close(fd);
    return byte;
}

static inline off_t file_size(const char *path)
{
    struct stat info;

    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

#endif
