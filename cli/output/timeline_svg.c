#include "output/timeline_svg.h"

enum { LEFT = 190, ROW = 34, TOP = 64, WIDTH = 1000, BELOW = 40 };

/* Blue for forward, orange for backward, green for its deferrable part; later stages of a device
 * are darker, to tell several on one device apart. */
static const char *const shades[3][3] = {{"#9ecae1", "#4292c6", "#08519c"},
                                         {"#fdbe85", "#f16913", "#a63603"},
                                         {"#c7e9c0", "#74c476", "#238b45"}};

static void bar(FILE *file, const lig_pipe_event *event, const lig_pipe_plan *plan, double scale)
{
    uint32_t before = 0;
    for (uint32_t s = 0; s < event->stage; s++)
        before += plan->stage_device[s] == event->device;
    double x = LEFT + event->begin_ms * scale, width = (event->end_ms - event->begin_ms) * scale;
    double y = TOP + (double)event->device * ROW;
    static const char *const works[] = {"forward", "backward", "weight gradients"};
    fprintf(
        file,
        "<g><rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" "
        "stroke-width=\"0.5\"/><title>stage %u, micro-batch %u, %s: %.3f to %.3f ms</title>",
        x, y, width, ROW - 8, shades[event->work % 3][before % 3], event->stage, event->microbatch,
        works[event->work % 3], event->begin_ms, event->end_ms);
    if (width > 14)
        fprintf(file,
                "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\" font-size=\"11\">%u</text>",
                x + width / 2, y + 17, event->microbatch);
    fputs("</g>\n", file);
}

static void side(FILE *file, const lig_pipe_plan *plan, uint32_t device)
{
    double y = TOP + (double)device * ROW;
    double part = plan->bottleneck_ms > 0 ? plan->device_ms[device] / plan->bottleneck_ms : 0;
    fprintf(file, "<text x=\"10\" y=\"%.0f\">device %u</text>", y + 17, device);
    fprintf(
        file,
        "<g><rect x=\"80\" y=\"%.0f\" width=\"100\" height=\"10\" fill=\"#eee\"/><rect x=\"80\" "
        "y=\"%.0f\" width=\"%.1f\" height=\"10\" fill=\"#666\"/><title>%.3f ms a "
        "micro-batch</title></g>",
        y + 2, y + 2, 100 * part, plan->device_ms[device]);
    fprintf(file, "<text x=\"80\" y=\"%.0f\" font-size=\"10\">%.3g GB</text>\n", y + 24,
            plan->device_bytes[device] / 1e9);
}

void cli_timeline_svg(FILE *file, const lig_pipe_plan *plan, const lig_pipe_timeline *timeline,
                      const lig_pipe_options *options)
{
    double scale = timeline->step_ms > 0 ? WIDTH / timeline->step_ms : 0;
    uint32_t height = TOP + plan->device_count * ROW + BELOW;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %u\" width=\"%d\" "
            "height=\"%u\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n",
            LEFT + WIDTH + 20, height, LEFT + WIDTH + 20, height);
    fprintf(file,
            "<text x=\"10\" y=\"22\" font-size=\"15\">%s, %s, %u stages on %u devices, %u "
            "micro-batches</text>\n"
            "<text x=\"10\" y=\"42\">step %.3f ms (bound %.3f), bubble %.1f %%, bottleneck %.3f ms "
            "(bound %.3f), "
            "cut %.3f MB</text>\n",
            lig_pipe_method_name(plan->method), lig_pipe_schedule_name(options->schedule),
            plan->stage_count, plan->device_count, options->microbatches, plan->step_ms,
            plan->step_bound_ms, 100 * plan->bubble, plan->bottleneck_ms, plan->lower_bound_ms,
            plan->cut_bytes / 1e6);
    for (uint32_t d = 0; d < plan->device_count; d++)
        side(file, plan, d);
    for (size_t i = 0; i < timeline->event_count; i++)
        bar(file, &timeline->events[i], plan, scale);
    fprintf(file,
            "<text x=\"%d\" y=\"%u\">0</text><text x=\"%d\" y=\"%u\" text-anchor=\"end\">%.3f "
            "ms</text>\n",
            LEFT, height - 18, LEFT + WIDTH, height - 18, timeline->step_ms);
    fputs("</svg>\n", file);
}
