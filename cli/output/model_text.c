/* Parts of a model's description on one line. */
#include "cli.h"

void cli_metrics_text(const lig_model *model, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < model->metric_count && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s=%.6g", i > 0 ? " " : "",
                                 model->metrics[i].name, model->metrics[i].value);
}

void cli_tags_text(const lig_model *model, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < model->tag_count && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s=%s", i > 0 ? " " : "",
                                 model->tags[i].name, model->tags[i].value);
}
