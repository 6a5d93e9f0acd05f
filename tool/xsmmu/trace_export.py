# SPDX-License-Identifier: GPL-2.0-only
"""Recordings in the formats of other programs, block by block, so in bounded memory.

Parquet is written by pyarrow, CTF by babeltrace2. Perfetto's library has no Debian package; Perfetto gets the JSON of
Chrome's trace events, which it documents and opens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from xsmmu.errors import UserError
from xsmmu.files import complete
from xsmmu.trace import FIELDS, KINDS, Recording, library

_OPEN: Final = {"map", "map_list", "alloc", "iova_alloc"}
_CLOSE: Final = {"unmap", "unmap_list", "free", "iova_free"}
_FAILED: Final = 0x04


def parquet(recording: Recording, out: Path) -> int:
    """A row an event, a row group a block; the header is metadata `xsmmu`. Returns the number of events."""
    arrow = library("pyarrow", "it has no Debian package: pip install pyarrow")
    writer = library("pyarrow.parquet", "it has no Debian package: pip install pyarrow")
    types = {"<u8": arrow.uint64(), "<u4": arrow.uint32(), "<u2": arrow.uint16(), "u1": arrow.uint8()}
    text = json.dumps(recording.header)
    schema = arrow.schema([(name, types[kind]) for name, kind in FIELDS], metadata={"xsmmu": text})
    count = 0
    with complete(out) as part, part.open("xb") as to, writer.ParquetWriter(to, schema, compression="zstd") as file:
        for events in recording.events():
            columns = [arrow.array(events[name].copy()) for name, _ in FIELDS]
            file.write_table(arrow.Table.from_arrays(columns, schema=schema))
            count += len(events)
    return count


def _json_lines(recording: Recording) -> Iterator[dict[str, Any]]:
    """An event of Chrome's format each: the life of a mapping is a slice of its device, all else an instant."""
    devices = recording.header.get("devices")
    for number, device in enumerate(devices if isinstance(devices, list) else []):
        name = device.get("name", number) if isinstance(device, dict) else device
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": str(name)}}
    names = [name for name, _ in FIELDS]
    for events in recording.events():
        for values in events.tolist():
            event = dict(zip(names, values, strict=True))
            kind, failed = KINDS[event["kind"]], event["flags"] & _FAILED
            common = {"name": kind, "cat": "dma", "ts": event["ns"] / 1000, "pid": event["device"], "tid": event["cpu"]}
            arguments = {name: event[name] for name in ("iova", "page", "bytes", "span", "queue", "offset", "flags")}
            if (kind in _OPEN or kind in _CLOSE) and not failed:
                mark = {"ph": "b" if kind in _OPEN else "e", "name": "mapping", "id": f"{event['iova']:#x}"}
                yield common | mark | {"args": {**arguments, "call": kind}}
            else:
                yield common | {"ph": "i", "s": "t", "args": arguments}


def perfetto(recording: Recording, out: Path) -> int:
    """JSON that ui.perfetto.dev opens. Returns the number of events."""
    count = 0
    with complete(out) as part, part.open("x") as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[')
        for number, event in enumerate(_json_lines(recording)):
            file.write(("\n" if not number else ",\n") + json.dumps(event, separators=(",", ":")))
            count += event["ph"] != "M"
        file.write(f'\n],"otherData":{json.dumps({"header": json.dumps(recording.header)})}}}\n')
    return count


def _source(bt2: Any, recording: Recording, counted: list[int]) -> Any:
    """A class of babeltrace2 components whose messages are a recording's events."""
    types = {name: kind for name, kind in FIELDS if name not in ("ns", "kind")}

    class Messages(bt2._UserMessageIterator):  # type: ignore[misc]
        def __init__(self, _config: Any, port: Any) -> None:
            self._classes = port.user_data
            self._made = self._messages()

        def _messages(self) -> Iterator[Any]:
            trace_class, stream_class, event_classes = self._classes
            made = trace_class(environment={"xsmmu_header": json.dumps(recording.header)})
            stream = made.create_stream(stream_class)
            yield self._create_stream_beginning_message(stream)
            for events in recording.events():
                for event in events:
                    made = self._create_event_message(
                        event_classes[int(event["kind"])], stream, default_clock_snapshot=int(event["ns"])
                    )
                    for name in types:
                        made.event.payload_field[name] = int(event[name])
                    counted[0] += 1
                    yield made
            yield self._create_stream_end_message(stream)

        def __next__(self) -> Any:
            return next(self._made)

    class Source(bt2._UserSourceComponent, message_iterator_class=Messages):  # type: ignore[misc,call-arg]
        def __init__(self, _config: Any, _params: Any, _object: Any) -> None:
            trace_class = self._create_trace_class()
            clock = self._create_clock_class(name="monotonic", frequency=1_000_000_000, origin_is_unix_epoch=False)
            stream_class = trace_class.create_stream_class(default_clock_class=clock)
            classes = {
                number: stream_class.create_event_class(name=name, payload_field_class=self._fields(trace_class))
                for number, name in enumerate(KINDS)
                if name
            }
            self._add_output_port("out", (trace_class, stream_class, classes))

        @staticmethod
        def _fields(trace_class: Any) -> Any:
            made = trace_class.create_structure_field_class()
            for name in types:
                made.append_member(name, trace_class.create_unsigned_integer_field_class(8 * int(types[name][-1])))
            return made

    return Source


def ctf(recording: Recording, out: Path) -> int:
    """A folder with a CTF trace; kinds are classes of events. Returns the number of events."""
    bt2 = library("bt2", "apt install python3-bt2")
    counted = [0]
    with complete(out) as part:
        graph = bt2.Graph()
        source = graph.add_component(_source(bt2, recording, counted), "recording")
        sink_class = bt2.find_plugin("ctf").sink_component_classes["fs"]
        params = {"path": str(part), "assume-single-trace": True, "quiet": True}
        sink = graph.add_component(sink_class, "files", params)
        graph.connect_ports(source.output_ports["out"], sink.input_ports["in"])
        try:
            graph.run()
        except bt2._Error as error:
            raise UserError(f"babeltrace2 cannot write {part}: {error[0].message}") from None
    return counted[0]


EXPORTS: Final[dict[str, Callable[[Recording, Path], int]]] = {"parquet": parquet, "ctf": ctf, "perfetto": perfetto}
