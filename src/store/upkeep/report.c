#include "store/upkeep/report.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

lig_status ligi_report_create(ligi_report **report)
{
    return ligi_calloc(report, 1, sizeof **report, "a report");
}

lig_status ligi_report_add(ligi_report *report, const char *format, ...)
{
    char text[LIGI_ERROR_TEXT_BYTES];
    va_list arguments;
    if (report->count == LIGI_PROBLEMS_MAX)
        return LIG_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    LIG_TRY(ligi_grow(&report->problems, &report->capacity, report->count + 1,
                      sizeof *report->problems, "a report"));
    LIG_TRY(ligi_strdup(&report->problems[report->count], text));
    report->count++;
    report->shown.problems = (const char *const *)report->problems;
    report->shown.problem_count = report->count;
    return LIG_OK;
}

void ligi_report_cut(ligi_report *report, size_t count)
{
    while (report->count > count)
        free(report->problems[--report->count]);
    report->shown.problem_count = report->count;
}

void lig_report_destroy(lig_report *shown)
{
    ligi_report *report = (ligi_report *)shown;
    if (report == NULL)
        return;
    ligi_report_cut(report, 0);
    free(report->problems);
    free(report);
}
