"""The form that asks a person for the key: one page, without scripts and without anything of another address."""

from __future__ import annotations

from urllib.parse import parse_qs

TITLE = "Parallel constrained decoding"
MOST_BYTES = 4096

#: What may be in the page and around it; `frame-ancestors` is added where all pages have theirs.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'"

_STYLE = """
:root { color-scheme: light dark; --back: #f8fafc; --card: #fff; --text: #0f172a; --soft: #475569; --line: #64748b;
  --accent: #2563eb; --press: #1d4ed8; --wrong: #b91c1c; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { --back: #0b1120; --card: #1e293b; --text: #f1f5f9;
  --soft: #cbd5e1; --line: #94a3b8; --accent: #2563eb; --press: #1d4ed8; --wrong: #fca5a5; } }
:root[data-theme=dark] { color-scheme: dark; --back: #0b1120; --card: #1e293b; --text: #f1f5f9; --soft: #cbd5e1;
  --line: #94a3b8; --wrong: #fca5a5; }
:root[data-theme=light] { color-scheme: light; }
* { box-sizing: border-box; }
body { align-items: center; background: var(--back); color: var(--text); display: flex; font: 16px/1.5 system-ui,
  -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; justify-content: center; margin: 0; min-height: 100vh;
  padding: 16px; }
main { background: var(--card); border: 1px solid var(--line); border-radius: 6px; max-width: 420px; padding: 24px;
  width: 100%; }
h1 { font-size: 20px; line-height: 1.3; margin: 0 0 8px; }
p { color: var(--soft); margin: 0 0 16px; }
#wrong { color: var(--wrong); font-weight: 600; }
label { display: block; font-weight: 600; margin: 0 0 6px; }
input, button { border-radius: 4px; font: inherit; min-height: 44px; padding: 8px 12px; width: 100%; }
input { background: var(--back); border: 1px solid var(--line); color: inherit; margin: 0 0 16px; }
button { background: var(--accent); border: 1px solid transparent; color: #fff; cursor: pointer; font-weight: 600; }
button:hover { background: var(--press); }
:is(input, button):focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
"""

_PAGE = """<!doctype html>
<html lang="en"{theme}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Key needed: {title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p id="why">This page is for people who have its key. Whoever started the service can tell you.</p>
<form method="post">
{wrong}<input name="username" autocomplete="username" value="pcd" hidden>
<label for="key">Key</label>
<input id="key" name="key" type="password" required autofocus autocomplete="current-password" spellcheck="false"{marks}>
<button>Open the page</button>
</form>
</main>
</body>
</html>
"""


def form(query: str, wrong: str = "") -> str:
    """The page; `wrong`: words of ours on the last try. The form is posted to the address that it was shown at."""
    theme = parse_qs(query).get("__theme", [""])[-1]  # Gradio's own parameter
    return _PAGE.format(
        title=TITLE,
        style=_STYLE,
        theme=f' data-theme="{theme}"' if theme in ("light", "dark") else "",
        wrong=f'<p id="wrong" role="alert">{wrong}</p>\n' if wrong else "",
        marks=' aria-invalid="true" aria-describedby="wrong"' if wrong else ' aria-describedby="why"',
    )


def key_of(body: bytes) -> str:
    """The key that the form sends, "" where there is none."""
    return parse_qs(body.decode("latin-1")).get("key", [""])[-1].strip()
