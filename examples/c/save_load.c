/* Saves a model and loads it back. */
#include <ligament/ligament.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static float weight[2][3] = {{1, 2, 3}, {4, 5, 6}}, loaded[2][3];
    const int64_t shape[] = {2, 3};
    lig_tensor tensor = {.name = "weight",
                         .data = weight,
                         .bytes = sizeof weight,
                         .shape = shape,
                         .ndim = 2,
                         .dtype = LIG_FLOAT32};
    lig_store *store = NULL;
    lig_status status = lig_store_open(&store, argc > 1 ? argv[1] : "models");
    if (status == LIG_OK)
        status = lig_store_save(store, "first", &tensor, 1, NULL);
    tensor.data = loaded;
    if (status == LIG_OK)
        status = lig_store_load(store, "first", &tensor, 1);
    if (status == LIG_OK)
        printf("the last element is %g\n", (double)loaded[1][2]);
    else
        fprintf(stderr, "%s\n", lig_error_text());
    lig_store_close(store);
    return status != LIG_OK;
}
