/* identifiers: whether the name of a column is that of an identifier, which says nothing about new rows. */
#ifndef DATA_IDENTIFIERS_H
#define DATA_IDENTIFIERS_H

enum identifier_name {
    NO_IDENTIFIER,     /* any other name */
    IDENTIFIER_NUMBER, /* index, row, no, code, ...: an identifier if its values differ */
    IDENTIFIER_KEY,    /* id, customer_id, uuid, ...: rows with the same value belong together */
    IDENTIFIER_UNIT,   /* subject, patient, ...: the same, and a unit may have many rows */
    NAME_OF_TIME       /* year, day, ...: no identifier, though its values may be 1, 2, 3, ... */
};

enum identifier_name identifier_name(const char *column);

#endif
