/* The log hook, for messages that have no caller. */
#ifndef LIGI_LOG_H
#define LIGI_LOG_H

#include <ligament/base.h>

void ligi_log(lig_log_level level, const char *format, ...) LIG_PRINTF(2, 3);

#endif
