/* Saves in the background. A tensor's memory may be reused as soon as the ticket's progress has
 * passed it; the model is saved when the ticket has ended. */
#include <ligament/ligament.h>
#include <stdio.h>

enum { TENSORS = 4, ELEMENTS = 1 << 18 };
static float values[TENSORS][ELEMENTS];

static lig_status save(lig_store *store)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    const int64_t shape[] = {ELEMENTS};
    lig_tensor tensors[TENSORS] = {{0}};
    lig_save_options options = LIG_SAVE_INIT;
    const lig_metric metrics[] = {{"val_acc", 0.91}};
    lig_ticket *ticket;
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = (lig_tensor){.name = names[i],
                                  .data = values[i],
                                  .bytes = sizeof values[i],
                                  .shape = shape,
                                  .ndim = 1,
                                  .dtype = LIG_FLOAT32};
    options.flags = LIG_SAVE_REPLACE;
    options.metrics = metrics;
    options.metric_count = 1;
    LIG_TRY(lig_store_save_start(store, "in background", tensors, TENSORS, &options, &ticket));
    for (uint64_t done = 0; done < TENSORS && !lig_ticket_done(ticket);) {
        uint64_t before = done;
        if (lig_ticket_progress(ticket, before, LIG_FOREVER, &done) != LIG_OK)
            break;
        for (; before < done; before++)
            values[before][0] += 1; /* training continues: the saved bytes do not change */
    }
    lig_status status = lig_ticket_wait(ticket, LIG_FOREVER);
    lig_ticket_destroy(ticket);
    return status;
}

int main(int argc, char **argv)
{
    lig_store *store = NULL;
    lig_status status = lig_store_open(&store, argc > 1 ? argv[1] : "models");
    if (status == LIG_OK)
        status = save(store);
    if (status != LIG_OK)
        fprintf(stderr, "%s\n", lig_error_text());
    else
        puts("saved");
    lig_store_close(store);
    return status != LIG_OK;
}
