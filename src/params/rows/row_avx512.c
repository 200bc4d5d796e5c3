#define LIGI_ROW_NAME ligi_row_avx512
#define LIGI_ROW_KIND "avx512"
#include "params/rows/row_kernels_body.h"
