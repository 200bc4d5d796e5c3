/* Packs that this process has open, by descriptors that a server has sent. */
#include "base/clock.h"
#include "store_scene.h"

#include <ligament/serve.h>

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 3 << 18 };

static float data[COUNT], back[COUNT];
static int64_t length = COUNT;

static size_t removed_but_open(void)
{
    char path[320], target[256];
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    for (const struct dirent *one; (one = readdir(folder)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", one->d_name);
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        target[bytes < 0 ? 0 : bytes] = '\0';
        count += strstr(target, ".pack (deleted)") != NULL;
    }
    closedir(folder);
    return count;
}

static lig_store *client(const lig_server *server)
{
    char uri[256];
    lig_store *store = NULL;
    snprintf(uri, sizeof uri, "ligament://%s?transport=shm&liveness_ms=1000",
             lig_server_address(server));
    assert_ok(lig_store_open(&store, uri));
    return store;
}

/* A client that has loaded a model does not keep its space on the disk: the client that removes it
 * closes it at once, another one soon. */
static void test_removed_packs_are_closed(void **state)
{
    char folder[] = "/tmp/ligament-files-XXXXXX", place[64], command[64];
    lig_server *server;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(place, sizeof place, "file://%s/store", folder);
    assert_ok(lig_server_open(&server, place, NULL));
    lig_store *store = client(server), *other = client(server);
    scene_fill(data, sizeof data, 7);
    for (int i = 0; i < 2; i++) {
        int64_t end_ns = ligi_now_ns() + (i ? INT64_C(30000000000) : 0);
        lig_tensor saved = scene_tensor("w", data, &length);
        lig_tensor loaded = scene_tensor("w", back, &length);
        assert_ok(lig_store_save(store, "m", &saved, 1, NULL));
        assert_ok(lig_store_load(i ? other : store, "m", &loaded, 1));
        assert_ok(lig_store_retire(store, "m"));
        while (removed_but_open() && ligi_now_ns() < end_ns)
            sched_yield();
        assert_int_equal(removed_but_open(), 0);
    }
    lig_store_close(other);
    lig_store_close(store);
    lig_server_close(server);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_removed_packs_are_closed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
