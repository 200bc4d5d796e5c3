#define LIGI_ROW_NAME ligi_row_avx2
#define LIGI_ROW_KIND "avx2"
#include "params/rows/row_kernels_body.h"
