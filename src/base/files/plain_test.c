#include "base/files/plain.h"

#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/ligament-plain-XXXXXX";
static int folder_fd = -1;

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder_fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"file", "link",   "loop",  "dangling",
                                        "fifo", "socket", "second"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlinkat(folder_fd, names[i], 0);
    unlinkat(folder_fd, "folder", AT_REMOVEDIR);
    close(folder_fd);
    return rmdir(folder);
}

static void make_file(const char *name)
{
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "kept", 4), 4);
    close(fd);
}

static void make_socket(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    close(fd);
}

static void plain_files_are_opened(void **state)
{
    char text[8] = "";
    int fd;

    (void)state;
    assert_status(ligi_plain_open(folder_fd, folder, "file", O_RDONLY, &fd), LIG_E_NOTFOUND);
    make_file("file");
    assert_ok(ligi_plain_open(folder_fd, folder, "file", O_RDWR | O_CREAT, &fd));
    assert_int_equal(read(fd, text, sizeof text), 4);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_ok(ligi_plain_sole(fd, folder, "file"));
    assert_int_equal(linkat(folder_fd, "file", folder_fd, "second", 0), 0);
    assert_status(ligi_plain_sole(fd, folder, "file"), LIG_E_DENIED);
    assert_says("/file has 2 hard links");
    close(fd);
}

static void others_are_refused(void **state)
{
    static const struct {
        const char *name, *says;
    } odd[] = {{"link", "/link is a symbolic link"},
               {"loop", "/loop is a symbolic link"},
               {"dangling", "/dangling is a symbolic link"},
               {"fifo", "/fifo is a FIFO"},
               {"socket", "/socket is a socket"},
               {"folder", "/folder is a folder"}};
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR | O_CREAT, O_WRONLY | O_CREAT};
    int fd = -1;

    (void)state;
    assert_int_equal(symlinkat("file", folder_fd, "link"), 0);
    assert_int_equal(symlinkat("loop", folder_fd, "loop"), 0);
    assert_int_equal(symlinkat("absent", folder_fd, "dangling"), 0);
    assert_int_equal(mkfifoat(folder_fd, "fifo", 0600), 0);
    assert_int_equal(mkdirat(folder_fd, "folder", 0700), 0);
    make_socket("socket");
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (size_t j = 0; j < sizeof flags / sizeof flags[0]; j++) {
            lig_status status = ligi_plain_open(folder_fd, folder, odd[i].name, flags[j], &fd);
            assert_status(status, LIG_E_CORRUPT);
            assert_says(odd[i].says);
        }
    assert_int_equal(fd, -1);
    assert_int_equal(faccessat(folder_fd, "absent", F_OK, 0), -1);
}

static void folders_are_opened(void **state)
{
    int fd;

    (void)state;
    assert_status(ligi_plain_folder(folder_fd, folder, "absent", &fd), LIG_E_NOTFOUND);
    assert_ok(ligi_plain_folder(folder_fd, folder, "folder", &fd));
    close(fd);
    assert_int_equal(unlinkat(folder_fd, "link", 0), 0);
    assert_int_equal(symlinkat("folder", folder_fd, "link"), 0);
    assert_status(ligi_plain_folder(folder_fd, folder, "link", &fd), LIG_E_CORRUPT);
    assert_says("/link is a symbolic link, expected a folder");
    assert_status(ligi_plain_folder(folder_fd, folder, "file", &fd), LIG_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_files_are_opened),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(folders_are_opened),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
