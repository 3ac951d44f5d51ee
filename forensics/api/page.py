"""The page: files of `forensics/page`, served as they are. There is no build, and nothing comes from elsewhere."""

from hashlib import blake2b
from pathlib import Path

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

FOLDER = Path(__file__).parent.parent / "page"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Text becomes markup nowhere: the browser itself refuses innerHTML and its like.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


def routes() -> APIRouter:
    """`/` and the files beside it. The list of files is made once; what is not in it does not exist."""
    files = {
        path.relative_to(FOLDER).as_posix(): path
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in MEDIA_TYPES and path.is_file()
    }
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page() -> Response:
        return _answer(files["index.html"])

    @router.get("/page/{name:path}")
    async def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return _answer(files[name])

    return router


def _answer(path: Path) -> Response:
    # Read each time: the system keeps it in its cache, the daemon need not.
    content = path.read_bytes()
    headers = {
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "ETag": f'"{blake2b(content, digest_size=12).hexdigest()}"',
    }
    return Response(content, media_type=MEDIA_TYPES[path.suffix], headers=headers)
