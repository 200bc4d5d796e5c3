#include <ligament/backend.h>

#include "base/test.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Plugins are compiled here, each from a few lines, as their authors do. */
static char folder[64];

static int compile(const char *name, const char *text)
{
    char source[128], library[128];
    int status = -1;
    pid_t child;

    snprintf(source, sizeof source, "%s/%s.c", folder, name);
    snprintf(library, sizeof library, "%s/%s.so", folder, name);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    char *const words[] = {"cc",   "-shared", "-fPIC", "-Werror", "-I" LIGI_SOURCE_DIR "/include",
                           source, "-o",      library, NULL};
    if (posix_spawnp(&child, "cc", NULL, NULL, words, environ) != 0)
        return 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    return path;
}

#define HEAD "#include <ligament/plugin.h>\n"
#define SAVE                                                                                       \
    "static lig_status s(void *self, const char *set, const lig_tensor *t, size_t n)\n"            \
    "{ (void)self; (void)t; return lig_fail(LIG_E_LIMIT, \"%s takes no %zu\", set, n); }\n"
#define RAW(abi, tensor, name)                                                                     \
    HEAD SAVE "const lig_plugin_host *lig_plugin_table;\n"                                         \
              "static const lig_backend_ops ops = {.save = s, .load = s};\n"                       \
              "lig_plugin lig_plugin_entry = {" abi                                                \
              ", sizeof(lig_plugin), sizeof(lig_backend_ops), " tensor ", \"" name                 \
              "\", &ops, &lig_plugin_table};\n"

static void plugins_work(void **state)
{
    const char *name = NULL;
    lig_backend *backend;

    (void)state;
    if (!compile("good", HEAD SAVE "LIG_REGISTER_BACKEND(good_one, .save = s, .load = s)\n")) {
        printf("    skipped: there is no compiler here\n");
        skip();
    }
    assert_ok(lig_plugin_load(path_of("good"), &name));
    assert_string_equal(name, "good_one");
    assert_ok(lig_plugin_load(path_of("good"), NULL));
    assert_non_null(lig_backend_find("good_one"));
    assert_ok(lig_backend_open(&backend, "GOOD_one", "anything"));
    assert_status(lig_backend_save(backend, "tea", NULL, 0), LIG_E_LIMIT);
    assert_says("tea takes no 0");
    assert_status(lig_backend_drop(backend, "tea"), LIG_E_UNSUPPORTED);
    lig_backend_close(backend);
    assert_true(
        compile("same", HEAD SAVE "LIG_REGISTER_BACKEND(good_one, .save = s, .load = s)\n"));
    assert_status(lig_plugin_load(path_of("same"), NULL), LIG_E_EXISTS);
    assert_says("good_one");
    assert_true(compile("taken", HEAD SAVE "LIG_REGISTER_BACKEND(File, .save = s, .load = s)\n"));
    assert_status(lig_plugin_load(path_of("taken"), NULL), LIG_E_EXISTS);
}

#define MANY(first, second)                                                                        \
    HEAD SAVE "const lig_plugin_host *lig_plugin_table;\n"                                         \
              "static lig_status l(void *self, const char *set, const lig_tensor *t, size_t n)\n"  \
              "{ lig_backend *other; (void)self;\n"                                                \
              "  lig_status status = lig_plugin_table->backend_open(&other, set, \"\");\n"         \
              "  if (status != LIG_OK) return status;\n"                                           \
              "  status = lig_plugin_table->backend_load(other, set, t, n);\n"                     \
              "  lig_plugin_table->backend_close(other);\n"                                        \
              "  return status; }\n"                                                               \
              "static const lig_backend_ops ops[2] = {{.save = s, .load = l}, {.save = s, .load "  \
              "= s}};\n"                                                                           \
              "#define ENTRY(name, ops) {LIG_PLUGIN_ABI, sizeof(lig_plugin), "                     \
              "sizeof(lig_backend_ops), sizeof(lig_tensor), name, ops, &lig_plugin_table}\n"       \
              "static lig_plugin all[2] = {ENTRY(\"" first "\", &ops[0]), ENTRY(\"" second         \
              "\", &ops[1])};\n"                                                                   \
              "lig_plugin *lig_plugin_at(size_t index);\n"                                         \
              "lig_plugin *lig_plugin_at(size_t index) { return index < 2 ? &all[index] : 0; }\n"

static void several_backends(void **state)
{
    const char *name = NULL;
    lig_backend *backend;

    (void)state;
    if (!compile("many", MANY("many_a", "many_b")))
        skip();
    assert_ok(lig_plugin_load(path_of("many"), &name));
    assert_string_equal(name, "many_a");
    assert_non_null(lig_backend_find("many_b"));
    assert_ok(lig_backend_open(&backend, "many_a", ""));
    assert_status(lig_backend_load(backend, "many_b", NULL, 0), LIG_E_LIMIT);
    assert_says("many_b takes no 0");
    assert_status(lig_backend_load(backend, "nobody", NULL, 0), LIG_E_NOTFOUND);
    lig_backend_close(backend);
    assert_true(compile("half", MANY("half_a", "1st")));
    assert_status(lig_plugin_load(path_of("half"), NULL), LIG_E_INVALID);
    assert_null(lig_backend_find("half_a")); /* all are checked before the first is registered */
}

static void refused_plugins(void **state)
{
    static const struct {
        const char *text;
        lig_status status;
        const char *says;
    } cases[] = {
        {"int nothing;\n", LIG_E_INVALID, "lig_plugin_entry"},
        {RAW("99", "sizeof(lig_tensor)", "a"), LIG_E_UNSUPPORTED, "ABI 99"},
        {RAW("LIG_PLUGIN_ABI", "8", "a"), LIG_E_UNSUPPORTED, "rebuild"},
        {RAW("LIG_PLUGIN_ABI", "sizeof(lig_tensor)", "1st"), LIG_E_INVALID, "letter"},
        {RAW("LIG_PLUGIN_ABI", "sizeof(lig_tensor)", "a-b"), LIG_E_INVALID, "a-b"},
        {RAW("LIG_PLUGIN_ABI", "sizeof(lig_tensor)", ""), LIG_E_INVALID, "letter"},
        {HEAD SAVE "LIG_REGISTER_BACKEND(a, .save = s)\n", LIG_E_INVALID, "lacks load"},
        {HEAD SAVE "static lig_status c(void *x) { (void)x; return LIG_OK; }\n"
                   "LIG_REGISTER_BACKEND(a, .save = s, .load = s, .commit = c)\n",
         LIG_E_INVALID, "all four"},
        {HEAD "static lig_volume_ops v = {sizeof v};\nLIG_REGISTER_BACKEND(a, .volume = &v)\n",
         LIG_E_INVALID, "lacks flags"},
        {HEAD "static lig_volume_ops v = {7};\nLIG_REGISTER_BACKEND(a, .volume = &v)\n",
         LIG_E_UNSUPPORTED, "7 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "bad%zu", i);
        if (!compile(name, cases[i].text))
            skip();
        assert_status(lig_plugin_load(path_of(name), NULL), cases[i].status);
        assert_says(cases[i].says);
        assert_null(lig_backend_find("a"));
    }
}

static void what_is_no_library(void **state)
{
    (void)state;
    assert_status(lig_plugin_load(path_of("absent"), NULL), LIG_E_NOTFOUND);
    assert_status(lig_plugin_load("", NULL), LIG_E_INVALID);
    FILE *file = fopen(path_of("text"), "w");
    fputs("not a library", file);
    fclose(file);
    assert_status(lig_plugin_load(path_of("text"), NULL), LIG_E_INVALID);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ligament-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"good", "same", "taken", "text", "many", "half"};
    char path[128];

    (void)state;
    for (size_t i = 0; i < 6 + 10; i++) {
        char number[16];
        snprintf(number, sizeof number, "bad%zu", i - 6);
        const char *name = i < 6 ? names[i] : number;
        unlink(path_of(name));
        snprintf(path, sizeof path, "%s/%s.c", folder, name);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugins_work),
        cmocka_unit_test(several_backends),
        cmocka_unit_test(refused_plugins),
        cmocka_unit_test(what_is_no_library),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
