/* Constants of the zip format shared by reader and writer. */
#ifndef CLI_NPZ_H
#define CLI_NPZ_H

#define ZIP_LOCAL 0x04034b50u
#define ZIP_ENTRY 0x02014b50u
#define ZIP_END 0x06054b50u
#define ZIP64_END 0x06064b50u
#define ZIP64_LOCATOR 0x07064b50u

#define ZIP_LOCAL_BYTES 30u
#define ZIP_ENTRY_BYTES 46u
#define ZIP_END_BYTES 22u
#define ZIP64_END_BYTES 56u
#define ZIP64_LOCATOR_BYTES 20u

#endif
