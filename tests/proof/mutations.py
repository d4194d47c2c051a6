"""The small mistakes that tests/proof/mutate.py puts into C code: which ones a file allows, and the line that each leaves.

Works on text that clang-format has laid out (a function begins and ends in the first column), line by line, so that line numbers stay.
Only bodies of functions are changed; comments, strings, preprocessor lines and asserts are not."""
import re
from dataclasses import dataclass

STATEMENTS = {"return", "goto", "else", "case", "sizeof"}  # what stands before a name without declaring it
SWAPS = {  # operator between blanks -> what may stand there instead
    "<": ("<=", ">="), "<=": ("<",), ">": (">=", "<="), ">=": (">",), "==": ("!=",), "!=": ("==",),  # comparison, boundary
    "&&": ("||",), "||": ("&&",),
    "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("/",), "&": ("|",), "|": ("&",), "<<": (">>",), ">>": ("<<",),
    "+=": ("-=", "="), "-=": ("+=", "="), "*=": ("=",), "|=": ("=",), "&=": ("|=",),
}
OPERATOR = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||<<|>>|\+=|-=|\*=|\|=|&=|[<>+\-*/%&|])(?= )")
INTEGER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
REAL = re.compile(r"(?<![\w.])(\d+\.\d*(?:e-?\d+)?f?)(?![\w.])")
CALL = re.compile(r"^\s+(?:[A-Za-z_]\w*\(.*\)|[\w.>\[\]\-*() +]+ (?:[-+|&*/]?=) .*|[\w.>\[\]\-]+(?:\+\+|--)|\+\+.*|--.*|break|continue);$")
GUARDED = re.compile(r"^\s+(?:else )?if \(.*\) .*;$")
DECLARED = re.compile(r"\b((?:const )?(?:(?:struct|enum|union) )?[A-Za-z_]\w* \**(?:const )?)([A-Za-z_]\w*)(?=[,;)\[]| =)")
SIGNATURE = re.compile(r"^(?:static |inline )*(.*?[ *])[A-Za-z_]\w*\(")
WORD = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)(?![\w(])")


@dataclass(frozen=True)
class Mutation:
    line: int  # from 1
    kind: str
    before: str  # the whole line
    after: str


def blanked(text):
    """The text with the insides of comments and strings as blanks; lines and columns stay."""
    def blank(match):
        found = match.group(0)
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def functions(code):
    """(first line, last line, return type, parameters) of each function; lines from 0."""
    head = body = None
    for number, line in enumerate(code):
        if body is not None:
            if line.startswith("}"):
                yield body, number, SIGNATURE.match(head)[1].strip(), declarations(head)
                head = body = None
        elif not line.startswith(" "):
            head = line if SIGNATURE.match(line) else None
        elif head is not None:
            head += line
        if head is not None and body is None and line.rstrip().endswith(") {"):
            body = number + 1


def declarations(code):
    """The names that the text declares, each with its type."""
    found = {}
    for declared in DECLARED.finditer(code):
        if declared[1].split()[0] not in STATEMENTS:
            found.setdefault(declared[2], declared[1].replace("const ", "").strip())
    return found


def closing(text, opened):
    """The index of the bracket that closes the one at [opened]; None: on another line."""
    depth = 0
    for i in range(opened, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    return None


def replaced(line, begin, end, text):
    return line[:begin] + text + line[end:]


def of_operators(line, code):
    for found in OPERATOR.finditer(code):
        for other in SWAPS[found[1]]:
            kind = "comparison" if found[1] in ("<", "<=", ">", ">=", "==", "!=") else "logic" if found[1] in ("&&", "||") else "arithmetic"
            yield kind, replaced(line, *found.span(1), other)
    for found in re.finditer(r" [+-] 1(?![\w.])", code):
        yield "off by one", replaced(line, *found.span(), "")
    for found in re.finditer(r"(?<=[\w\])])(\+\+|--)(?=[;,)])", code):
        yield "arithmetic", replaced(line, *found.span(1), "--" if found[1] == "++" else "++")


def of_constants(line, code):
    for found in INTEGER.finditer(code):
        value = int(found[1])
        for other in {value + 1, value - 1 if value > 1 else 0 if value == 1 else 1}:
            yield "constant", replaced(line, *found.span(1), str(other))
    for found in REAL.finditer(code):
        suffix = "f" if found[1].endswith("f") else ""
        value = float(found[1].rstrip("f"))
        yield "constant", replaced(line, *found.span(1), (repr(value * 2) if value else "1.0") + suffix)
    for found in re.finditer(r"(?<!\w)(true|false)(?!\w)", code):
        yield "constant", replaced(line, *found.span(1), "false" if found[1] == "true" else "true")
    for found in re.finditer(r"(?<=[=(,?:] )-(?=[\w(])|(?<=\()-(?=[\w(])|(?<=return )-(?=[\w(])", code):
        yield "sign", replaced(line, *found.span(), "")


def of_conditions(line, code):
    for found in re.finditer(r"(?<!\w)(?:if|while) (\()", code):
        end = closing(code, found.start(1))
        if end:
            inside = line[found.start(1) + 1:end]
            yield "condition negated", replaced(line, found.start(1) + 1, end, f"!({inside})")
    for found in re.finditer(r"(?<=[(&|,=!] )!(?=\w)|(?<=\()!(?=\w)|(?<=return )!(?=\w)", code):
        yield "condition negated", replaced(line, *found.span(), "")


def of_statements(line, code, result):
    indent = line[:len(line) - len(line.lstrip())]
    if GUARDED.match(code):
        yield "check removed", indent + ("else ;" if code.lstrip().startswith("else") else ";")
    elif CALL.match(code) and not DECLARED.match(code.lstrip()):
        yield "statement removed", indent + ";"
        if result == "void":
            yield "early return", indent + "return;"
        elif result == "status":
            yield "early return", indent + "return OK;"
        elif result in ("bool", "int", "size_t", "int64_t", "uint64_t", "double", "float"):
            yield "early return", indent + "return 0;"


def of_variables(line, code, names):
    if DECLARED.match(code.lstrip()) and "=" not in code:
        return
    begin = code.index("=") if DECLARED.match(code.lstrip()) else 0
    for found in WORD.finditer(code, begin):
        for other, kind in names.items():
            if found[1] in names and other != found[1] and kind == names[found[1]]:
                yield "wrong variable", replaced(line, *found.span(1), other)


def mutations(text):
    """Every mutation that the text of a C file allows, in order of lines."""
    lines, code = text.split("\n"), blanked(text).split("\n")
    for first, last, result, names in functions(code):
        for number in range(first, last):
            line, plain = lines[number], code[number].rstrip()
            names.update(declarations(plain))
            if not plain.strip() or plain.lstrip().startswith(("#", "case ")) or "assert(" in plain:
                continue
            seen = {line}
            for kind, after in (*of_operators(line, plain), *of_constants(line, plain), *of_conditions(line, plain),
                                *of_statements(line, plain, result), *of_variables(line, plain, names)):
                if after not in seen:
                    seen.add(after)
                    yield Mutation(number + 1, kind, line, after)
