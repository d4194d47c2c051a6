/* A name is compared by its last word: that of customer_id, customerId, CustomerID and "customer id" is "id". */
#include "data/tables/identifiers.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool is_break(const char *name, size_t at) {
    unsigned char before = (unsigned char)name[at - 1], c = (unsigned char)name[at];
    return !isalnum(before) || (isupper(c) && islower(before));
}

static const char *last_word(const char *name) {
    size_t at = strlen(name);
    while (at > 0 && (at == strlen(name) || !is_break(name, at))) at--;
    return name + at;
}

enum identifier_name identifier_name(const char *column) {
    static const struct {
        enum identifier_name kind;
        bool is_whole; /* only as the whole name: "phone number" may be one, "number of rooms" is none */
        const char *words[24];
    } kinds[] = {
        {IDENTIFIER_NUMBER, true, {"no", "nr", "num", "number", "row", "obs", "observation", "case", "rank", "record"}},
        {IDENTIFIER_NUMBER, false, {"index", "idx", "key", "code", "rownames", "rowname", "rownum", "rowid", "serial"}},
        {IDENTIFIER_NUMBER, false, {"_no", "_nr", "_number"}},
        {IDENTIFIER_KEY, false, {"id", "ids", "uuid", "guid", "identifier"}},
        {IDENTIFIER_UNIT,
         false,
         {"subject", "subj", "patient", "person", "participant", "respondent", "customer", "client", "user", "member",
          "student", "pupil", "animal", "rat", "mouse", "player", "individual"}},
        {NAME_OF_TIME,
         false,
         {"year", "years", "yr", "age", "time", "date", "day", "days", "month", "months", "week", "hour", "minute",
          "second", "quarter", "t", "period", "season", "decade"}},
    };
    const char *word = last_word(column);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; k < sizeof kinds[i].words / sizeof *kinds[i].words && kinds[i].words[k]; k++) {
            const char *known = kinds[i].words[k];
            bool is_ending = *known == '_' && word > column && strcasecmp(word, known + 1) == 0;
            if (is_ending || strcasecmp(kinds[i].is_whole ? column : word, known) == 0) return kinds[i].kind;
        }
    return NO_IDENTIFIER;
}
