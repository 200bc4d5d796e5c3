#include <ligament/secret.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"
#include "net/secure/secret_memory.h"

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ligament_secret_XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/secret", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void put_file(const char *text, size_t bytes, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), (ssize_t)bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static const char good[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void test_make_write_read(void **state)
{
    char one[LIG_SECRET_TEXT_MAX], two[LIG_SECRET_TEXT_MAX], *got;
    size_t bytes;

    (void)state;
    assert_ok(lig_secret_make(one));
    assert_ok(lig_secret_make(two));
    assert_string_not_equal(one, two);
    assert_int_equal(strlen(one), 64);
    assert_int_equal(strspn(one, "0123456789abcdef"), 64);
    assert_ok(lig_secret_write(path, one, 64));
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_ok(lig_secret_read(path, &got, &bytes));
    assert_int_equal(bytes, 64);
    assert_string_equal(got, one);
    lig_secret_free(got);
    lig_secret_free(NULL);
    assert_status(lig_secret_write(path, two, 64), LIG_E_EXISTS);
    assert_says(path);
}

static void test_refuses_readable_by_others(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0644, 0666};
    char *got = NULL;
    size_t bytes = 7;

    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        put_file(good, 64, modes[i]);
        assert_status(lig_secret_read(path, &got, &bytes), LIG_E_DENIED);
        assert_says("chmod 600");
    }
    assert_null(got);
    assert_int_equal(bytes, 7);
    put_file(good, 64, 0400);
    assert_ok(lig_secret_read(path, &got, &bytes));
    lig_secret_free(got);
}

static void test_sizes(void **state)
{
    char *got, text[LIG_SECRET_MOST + 100];
    size_t bytes;

    (void)state;
    memset(text, 'x', sizeof text);
    put_file(good, 31, 0600);
    assert_status(lig_secret_read(path, &got, &bytes), LIG_E_INVALID);
    assert_says("31 bytes");
    put_file("                                        \n", 41, 0600);
    assert_status(lig_secret_read(path, &got, &bytes), LIG_E_INVALID);
    put_file(text, LIG_SECRET_MOST + 1, 0600);
    assert_status(lig_secret_read(path, &got, &bytes), LIG_E_INVALID);
    put_file(text, sizeof text, 0600);
    assert_status(lig_secret_read(path, &got, &bytes), LIG_E_INVALID);
    put_file(text, LIG_SECRET_MOST, 0600);
    assert_ok(lig_secret_read(path, &got, &bytes));
    assert_int_equal(bytes, LIG_SECRET_MOST);
    lig_secret_free(got);
    assert_status(lig_secret_write("/nowhere/at/all", text, 31), LIG_E_INVALID);
    assert_status(lig_secret_write("/nowhere/at/all", text, 32), LIG_E_IO);
}

/* Bytes count, not letters: zeros inside stay, space at the end goes. */
static void test_bytes(void **state)
{
    char text[40] = {0}, *got;
    size_t bytes;

    (void)state;
    text[39] = 1;
    put_file(text, sizeof text, 0600);
    assert_ok(lig_secret_read(path, &got, &bytes));
    assert_int_equal(bytes, sizeof text);
    assert_memory_equal(got, text, sizeof text);
    lig_secret_free(got);
    memset(text, 0, sizeof text);
    memcpy(text + 33, "\r\n \t\n  ", 7);
    put_file(text, sizeof text, 0600);
    assert_ok(lig_secret_read(path, &got, &bytes));
    assert_int_equal(bytes, 33);
    lig_secret_free(got);
}

static void test_no_plain_file(void **state)
{
    char *got;
    size_t bytes;

    (void)state;
    unlink(path);
    assert_status(lig_secret_read(path, &got, &bytes), LIG_E_NOTFOUND);
    assert_says(path);
    assert_status(lig_secret_read(folder, &got, &bytes), LIG_E_INVALID);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_status(lig_secret_read(path, &got, &bytes), LIG_E_INVALID); /* and does not wait */
}

/* A forked child finds zeros where the parent's keys are, and may free them all the same. */
static void test_secret_memory_is_empty_in_a_child(void **state)
{
    char *key;

    (void)state;
    assert_ok(ligi_secret_memory_alloc(&key, 32, "a key"));
    memset(key, 'k', 32);
    pid_t child = fork();
    if (child == 0) {
        int wiped = key[0] == 0 && key[31] == 0;
        ligi_secret_memory_free(key);
        _exit(wiped ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(key[31], 'k');
    ligi_secret_memory_free(key);
    ligi_secret_memory_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_make_write_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refuses_readable_by_others, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_sizes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_bytes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_plain_file, make_folder, remove_folder),
        cmocka_unit_test(test_secret_memory_is_empty_in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
