/* A pull parser for the XML in an S3 server's answers. Bounded and safe against hostile input: it
 * never allocates, reads only the given bytes, and refuses document types (and with them external
 * and recursive entities), elements nested deeper than LIGI_S3_XML_DEPTH_MAX and malformed text. */
#ifndef LIGI_S3_XML_H
#define LIGI_S3_XML_H

#include <ligament/base.h>

#define LIGI_S3_XML_DEPTH_MAX 16

typedef enum ligi_s3_xml_event {
    LIGI_S3_XML_OPEN,  /* an element begins */
    LIGI_S3_XML_CLOSE, /* an element ends; its text can be read if it has no child elements */
    LIGI_S3_XML_END,   /* the document is complete */
    LIGI_S3_XML_BAD
} ligi_s3_xml_event;

typedef struct ligi_s3_xml_name { /* without a namespace prefix */
    const char *data;
    size_t bytes;
} ligi_s3_xml_name;

typedef struct ligi_s3_xml {
    const char *at, *end;
    ligi_s3_xml_name open[LIGI_S3_XML_DEPTH_MAX];
    size_t depth; /* of open elements; after CLOSE, open[depth] is the one that ended */
    const char *text, *text_end; /* since the last tag */
    int closing;                 /* an empty element (<a/>) has been opened and not yet closed */
    int started;                 /* the outermost element has been seen */
} ligi_s3_xml;

/* `data` is borrowed while the parser is used. */
ligi_s3_xml ligi_s3_xml_over(const char *data, size_t bytes);
ligi_s3_xml_event ligi_s3_xml_next(ligi_s3_xml *xml);
/* 1 if the element that the last event opened or closed has this name. */
int ligi_s3_xml_is(const ligi_s3_xml *xml, ligi_s3_xml_event event, const char *name);
/* After CLOSE: fills `out` with the text of the element, decoded, with a NUL. 0 if it is malformed,
 * contains a NUL or does not fit. */
int ligi_s3_xml_text(const ligi_s3_xml *xml, char *out, size_t out_bytes);

#endif
