#include "mesh/trace/trace_recorder.h"

#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The trace folder may belong to another user: targets of links in it are not changed. */
static void links_are_not_followed(void **state)
{
    char folder[] = "/tmp/ligament-trace-XXXXXX", victim[64], trace[64];
    const ligi_recorded whose = {.role = 1, .rank = 3};
    ligi_trace_recorder recorder;
    struct stat info;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(trace, sizeof trace, "%s/server-3.trace", folder);
    int fd = open(victim, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "kept", 4), 4);
    close(fd);
    ligi_trace_recorder_init(&recorder);
    assert_int_equal(symlink(victim, trace), 0);
    assert_status(ligi_trace_recorder_open(&recorder, folder, &whose), LIG_E_CORRUPT);
    assert_says("server-3.trace is a symbolic link");
    assert_int_equal(unlink(trace), 0);
    assert_int_equal(link(victim, trace), 0);
    assert_status(ligi_trace_recorder_open(&recorder, folder, &whose), LIG_E_DENIED);
    assert_says("server-3.trace has 2 hard links");
    assert_int_equal(unlink(trace), 0);
    assert_true(stat(victim, &info) == 0 && info.st_size == 4);
    for (int i = 0; i < 2; i++) /* a trace replaces an older one */
        assert_ok(ligi_trace_recorder_open(&recorder, folder, &whose));
    ligi_trace_recorder_close(&recorder);
    assert_true(stat(trace, &info) == 0 && info.st_size == 64);
    unlink(trace);
    unlink(victim);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(links_are_not_followed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
