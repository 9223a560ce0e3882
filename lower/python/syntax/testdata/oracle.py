"""Prints, for each path on stdin, how CPython reads the file.

One line of JSON a file: {"path", "ok", "source", "tree", "tokens"}. The tree is
the ast as an S-expression without positions; see oracle_test.go for the other
side.
"""
import ast
import io
import json
import struct
import sys
import tokenize
import warnings

warnings.simplefilter("ignore")
sys.setrecursionlimit(20000)
TYPE_PARAMS = {"TypeVar", "TypeVarTuple", "ParamSpec"}
SKIP = {"ctx", "type_comment", "type_ignores", "kind", "str", "is_lazy"}


def dump(n, out):
    if isinstance(n, ast.Constant):
        v = n.value
        if isinstance(v, str):
            out.append("s" + v.encode("utf-8", "surrogatepass").hex())
        elif isinstance(v, bytes):
            out.append("b" + v.hex())
        elif v is None or v is True or v is False:
            out.append(str(v))
        elif v is Ellipsis:
            out.append("...")
        elif isinstance(v, int):
            out.append("i%x" % v)
        elif isinstance(v, float):
            out.append("f" + struct.pack(">d", v).hex())
        else:
            out.append("c" + struct.pack(">d", v.imag).hex())
    elif type(n).__name__ == "Index":  # up to 3.8
        dump(n.value, out)
    elif type(n).__name__ == "ExtSlice":
        out.append("(Tuple ")
        dump(n.dims, out)
        out.append(")")
    elif isinstance(n, ast.AST):
        if isinstance(n, ast.JoinedStr):  # 3.12 keeps some empty strings
            n.values = [v for v in n.values if getattr(v, "value", 1) != ""]
        out.append("(" + type(n).__name__)
        for f in n._fields:
            if f in SKIP:
                continue
            v = getattr(n, f, None)
            if f == "type_params" and not v:
                continue
            out.append(" ")
            dump(v, out)
        if type(n).__name__ in TYPE_PARAMS and "default_value" not in n._fields:
            out.append(" ~")
        out.append(")")
    elif isinstance(n, list):
        out.append("[")
        for i, v in enumerate(n):
            if i:
                out.append(" ")
            dump(v, out)
        out.append("]")
    elif n is None:
        out.append("~")
    elif n is True or n is False:
        out.append(str(n))
    else:
        out.append(str(n))


START = {getattr(tokenize, n) for n in ("FSTRING_START", "TSTRING_START") if hasattr(tokenize, n)}
END = {getattr(tokenize, n) for n in ("FSTRING_END", "TSTRING_END") if hasattr(tokenize, n)}


def tokens(text):
    out = []
    lines = text.split("\n")
    depth = 0
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type in START:
            depth += 1
            if depth == 1:
                begin = t.start
        elif t.type in END:
            depth -= 1
            if depth == 0:
                (a, b), (c, d) = begin, t.end
                if a == c:
                    out.append(lines[a - 1][b:d])
                else:
                    out.append("\n".join([lines[a - 1][b:]] + lines[a : c - 1] + [lines[c - 1][:d]]))
        elif depth:
            continue
        elif t.type == tokenize.NEWLINE:
            out.append("NEWLINE")
        elif t.type == tokenize.INDENT:
            out.append("INDENT")
        elif t.type == tokenize.DEDENT:
            out.append("DEDENT")
        elif t.type in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER, tokenize.ENCODING):
            continue
        else:
            out.append(t.string)
    return out


for path in sys.stdin:
    path = path.rstrip("\n")
    r = {"path": path, "ok": False, "source": "", "tree": "", "tokens": None}
    try:
        with open(path, "rb") as f:
            data = f.read()
        tree = compile(data, path, "exec", ast.PyCF_ONLY_AST)
        r["ok"] = True
        enc, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        r["source"] = enc
        out = []
        dump(tree, out)
        r["tree"] = "".join(out)
        try:
            r["tokens"] = tokens(data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"))
        except Exception:
            r["tokens"] = None
    except Exception as e:
        r["source"] = repr(e)[:200]
    print(json.dumps(r), flush=True)
