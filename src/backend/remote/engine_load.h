/* Storage engines in shared objects of their own. */
#ifndef LIGI_ENGINE_LOAD_H
#define LIGI_ENGINE_LOAD_H

#include "backend/remote/storage_engine.h"

/* Loads `libligament_<scheme>.so` from the folder of this library. `package` is Debian's package
 * with what it needs, for the error text. LIG_E_UNSUPPORTED. */
lig_status ligi_engine_load(const char *scheme, const char *package, const ligi_engine_ops **ops);
/* The table given to engines. */
extern const ligi_engine_host ligi_engine_host_table;

#endif
