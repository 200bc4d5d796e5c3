#include "cli.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 24, TITLE_COLUMNS = 20 };
static const int64_t first_ns = 300000000, step_ns = 100000000;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void draw(cli_bar *bar, int64_t now)
{
    char done[24], total[24], rate[24], cells[BAR_CELLS + 1];
    double part = bar->total > 0 ? (double)bar->done / (double)bar->total : 1;
    double seconds = (double)(now - bar->start_ns) / 1e9;
    for (int i = 0; i < BAR_CELLS; i++)
        cells[i] = i < (int)(part * BAR_CELLS) ? '#' : '-';
    cells[BAR_CELLS] = '\0';
    cli_size_text(bar->done, done, sizeof done);
    cli_size_text(bar->total, total, sizeof total);
    cli_size_text(seconds > 0 ? (uint64_t)((double)bar->done / seconds) : 0, rate, sizeof rate);
    fputs("\r\033[K", stderr);
    cli_put_cut(stderr, bar->title, TITLE_COLUMNS);
    fprintf(stderr, " [%s] %s of %s, %s/s", cells, done, total, rate);
    fflush(stderr);
    bar->shown_ns = now;
}

void cli_bar_start(cli_bar *bar, const cli_call *call, const char *title, uint64_t total)
{
    *bar = (cli_bar){.title = title, .total = total, .start_ns = now_ns()};
    bar->on = isatty(STDERR_FILENO) && !call->json;
}

void cli_bar_add(cli_bar *bar, uint64_t bytes)
{
    bar->done += bytes;
    int64_t now = bar->on ? now_ns() : 0;
    if (bar->on && now - bar->start_ns > first_ns && now - bar->shown_ns > step_ns)
        draw(bar, now);
}

void cli_bar_end(cli_bar *bar)
{
    if (bar->on && bar->shown_ns > 0)
        fputs("\r\033[K", stderr);
    bar->on = 0;
}

/* May be called from any thread. A bar on the line is drawn again. */
static void show_log(void *context, lig_log_level level, const char *text)
{
    static const char *const levels[] = {"error: ", "warning: ", ""};
    (void)context;
    if (level < LIG_LOG_INFO || strstr(text, ": rebuilding the index: ") != NULL)
        fprintf(stderr, "\r\033[Kligament: %s%s\n", levels[level], text);
}

void cli_show_rebuilds(const cli_call *call)
{
    if (isatty(STDERR_FILENO) && !call->json)
        lig_log_set(show_log, NULL);
}
