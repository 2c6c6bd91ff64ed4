import asyncio, json
from pathlib import Path
import pytest
from tests.postgres import Database
from tests.shape_server import serving_shapes
from tests.waiting import eventually
from shapes.http.settings import HttpSettings

@pytest.mark.parametrize("mode", ["poll","sse"])
async def test_npm(newest_database: Database, tmp_path: Path, mode) -> None:
    database = newest_database
    database.execute('CREATE TABLE items (id int PRIMARY KEY, v varchar(8), part int NOT NULL)', "INSERT INTO items SELECT g, 'v' || g, g % 10 FROM generate_series(1, 2000) g")
    lines=[]
    async with serving_shapes(database, tmp_path, HttpSettings(allow_delete=True), chunk_bytes=20000) as server:
        p = await asyncio.create_subprocess_exec("node","/tmp/npmc/run.mjs",server.url+"/v1/shape","items",mode,stdout=asyncio.subprocess.PIPE,stderr=asyncio.subprocess.STDOUT,cwd="/tmp/npmc")
        async def read():
            async for l in p.stdout: lines.append(l.decode())
        t=asyncio.create_task(read())
        try:
            await eventually(lambda: any("ROWS 2000" in l for l in lines),"sync",10)
            database.execute("INSERT INTO items VALUES (3000,'x',1)")
            await eventually(lambda: any("ROWS 2001" in l for l in lines),"live",10)
            database.execute("DELETE FROM items WHERE id <= 1000")
            await eventually(lambda: any("ROWS 1001" in l for l in lines),"delete",10)
            database.execute("TRUNCATE items", "INSERT INTO items VALUES (7,'after',3)")
            await eventually(lambda: any("ROWS 1 " in l for l in lines),"truncate",20)
            database.execute("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (8,'b',3,4)")
            await eventually(lambda: any("ROWS 2 " in l for l in lines),"ddl",20)
        finally:
            print("".join(l[:200] for l in lines if "ROWS" in l or "ERR" in l)[-3000:], [l[:300] for l in lines[-3:]])
            p.kill(); await p.wait(); t.cancel()
            await asyncio.gather(t, return_exceptions=True)
