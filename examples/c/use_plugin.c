/* Uses a backend from a shared library: use_plugin ./libdummy.so [config] */
#include <ligament/ligament.h>
#include <stdio.h>

static lig_status use(const char *path, const char *config)
{
    int32_t counts[] = {3, 1, 4, 1, 5};
    const int64_t shape[] = {5};
    lig_tensor tensor = {.name = "counts",
                         .data = counts,
                         .bytes = sizeof counts,
                         .shape = shape,
                         .ndim = 1,
                         .dtype = LIG_INT32};
    lig_checkpoint *checkpoint;
    const char *backend;
    LIG_TRY(lig_plugin_load(path, &backend));
    LIG_TRY(lig_checkpoint_open(&checkpoint, backend, config));
    lig_status status = lig_checkpoint_save(checkpoint, "weights", &tensor, 1);
    counts[4] = 0;
    if (status == LIG_OK)
        status = lig_checkpoint_load(checkpoint, "weights", &tensor, 1);
    lig_checkpoint_close(checkpoint);
    if (status == LIG_OK)
        printf("%s returned %d\n", backend, (int)counts[4]);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: use_plugin PLUGIN.so [CONFIG]\n");
        return 2;
    }
    if (use(argv[1], argc > 2 ? argv[2] : "") == LIG_OK)
        return 0;
    fprintf(stderr, "%s\n", lig_error_text());
    return 1;
}
