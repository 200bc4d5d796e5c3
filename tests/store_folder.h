/* Folders of stores that come and go, for tests that begin again and again with the same one. */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include "store_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

static inline void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t bytes; (bytes = read(in, buffer, sizeof buffer)) > 0;)
        assert_int_equal(write(out, buffer, (size_t)bytes), bytes);
    close(in);
    close(out);
}

static inline void copy_folder(const char *from, const char *to)
{
    DIR *folder = opendir(from);
    assert_non_null(folder);
    assert_int_equal(mkdir(to, 0777), 0);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char inner[768], outer[768];
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%.500s/%s", from, entry->d_name);
        snprintf(outer, sizeof outer, "%.500s/%s", to, entry->d_name);
        assert_int_equal(stat(inner, &info), 0);
        if (S_ISDIR(info.st_mode))
            copy_folder(inner, outer);
        else
            copy_file(inner, outer);
    }
    closedir(folder);
}

/* The name of the file that was written last. */
static inline void newest_file(const char *place, char *name, size_t name_bytes)
{
    struct timespec last = {0, 0};
    DIR *folder = opendir(place);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[768];
        struct stat info;
        snprintf(path, sizeof path, "%.500s/%s", place, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &info) != 0 ||
            info.st_mtim.tv_sec < last.tv_sec ||
            (info.st_mtim.tv_sec == last.tv_sec && info.st_mtim.tv_nsec < last.tv_nsec))
            continue;
        last = info.st_mtim;
        snprintf(name, name_bytes, "%.60s", entry->d_name);
    }
    closedir(folder);
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static inline void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* What a peer said. */
static inline int is_ok(const char *answer)
{
    return strncmp(answer, "ok", 2) == 0;
}

#define assert_answer(call)                                                                        \
    do {                                                                                           \
        const char *said_ = (call);                                                                \
        if (!is_ok(said_))                                                                         \
            fail_msg("%s: %s", #call, said_);                                                      \
    } while (0)

#endif
