/* A report under construction. */
#ifndef LIGI_REPORT_H
#define LIGI_REPORT_H

#include <ligament/store.h>

typedef struct ligi_report {
    lig_report shown; /* first: a lig_report returned to the caller is one of these */
    char **problems;
    size_t count, capacity;
} ligi_report;

#define LIGI_PROBLEMS_MAX 10000 /* further ones are counted but not reported */

lig_status ligi_report_create(ligi_report **report);
lig_status ligi_report_add(ligi_report *report, const char *format, ...) LIG_PRINTF(2, 3);
/* Discards the problems from number `count` on. */
void ligi_report_cut(ligi_report *report, size_t count);

#endif
