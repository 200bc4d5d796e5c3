#define LIGI_ROW_NAME ligi_row_plain
#define LIGI_ROW_KIND "plain"
#include "params/rows/row_kernels_body.h"
