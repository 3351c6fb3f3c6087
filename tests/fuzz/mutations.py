"""Changes of files at random: of bytes, JSON, members of an archive, fields of a protobuf."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 65535, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
VALUES: tuple[Any, ...] = (None, True, 1e308, 0.5, "", "text", "../x", [], {}, [[]], {"a": []}, *NUMBERS)
TEXTS = ("", "x", "hidden", "\0", "../../x", "é" * 9, "a" * 5000)
TIMES = (1, 1, 1, 2, 4, 16)
"""How many changes there are in one file."""


def in_bytes(chance: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Bytes cut off, flipped, set, doubled, removed, moved, or taken from another file."""
    content = bytearray(data)
    for _ in range(chance.choice(TIMES)):
        at = chance.randrange(len(content) + 1)
        length = chance.choice((1, 2, 4, 8, 40, 400))
        match chance.randrange(7):
            case 0:
                del content[at:]
            case 1 if at < len(content):
                content[at] ^= 1 << chance.randrange(8)
            case 2:
                content[at : at + 1] = bytes([chance.choice((0, 1, 10, 32, 34, 127, 128, 255))])
            case 3:
                content[at:at] = content[at : at + length] * chance.choice((1, 2, 50))
            case 4:
                del content[at : at + length]
            case 5 if others:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                content[at:at] = other[start : start + 10 * length]
            case _:
                number = chance.choice(NUMBERS) % 2**64
                content[at : at + 8] = number.to_bytes(8, "little")
    return bytes(content)


def in_json(chance: random.Random, data: bytes) -> bytes:
    """Values replaced, removed, exchanged or put somewhere else; text that is no JSON is changed in bytes."""
    try:
        root = [json.loads(data)]
    except ValueError:
        return in_bytes(chance, data)
    for _ in range(chance.choice(TIMES)):
        places = list(_places(root))
        holder, key = chance.choice(places)
        other, there = chance.choice(places)
        match chance.randrange(4):
            case 0 if holder is not root:
                del holder[key]
            case 1:
                holder[key] = json.loads(json.dumps(other[there]))
            case 2 if isinstance(holder, dict):
                holder[chance.choice(TEXTS)] = deepcopy(chance.choice(VALUES))
            case _:
                holder[key] = deepcopy(chance.choice(VALUES))
    return json.dumps(root[0]).encode()


def _places(root: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in JSON, as what holds it and its key there."""
    holders = [root]
    while holders:
        holder = holders.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                holders.append(holder[key])


def in_archive(chance: random.Random, data: bytes) -> bytes:
    """Members of an archive changed, renamed, left out or doubled; sometimes the archive's own bytes."""
    if not chance.randrange(4):
        return in_bytes(chance, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(chance.choice(TIMES)):
        k = chance.randrange(len(members))
        name, held = members[k]
        match chance.randrange(6):
            case 0 if len(members) > 1:
                del members[k]
            case 1:
                members[k] = chance.choice(members)[0], held
            case 2:
                members[k] = in_bytes(chance, name.encode()).decode("latin-1"), held
            case 3:
                members[k] = name, chance.choice(members)[1]
            case _:
                members[k] = name, (in_json if held[:1] in b"{[" else in_bytes)(chance, held)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, held in {name.partition("\0")[0] or "_": held for name, held in members}.items():
            archive.writestr(name, held)
    return target.getvalue()


def in_message(chance: random.Random, message: Message) -> None:
    """Fields of a protobuf, and of what is in it, set, cleared, doubled, exchanged or copied, in place."""
    for _ in range(chance.choice(TIMES)):
        everything = list(_messages(message))
        one = chance.choice(everything)
        fields = [f for f in one.DESCRIPTOR.fields if _holds(one, f)] or list(one.DESCRIPTOR.fields)
        field = chance.choice(fields if chance.randrange(3) else list(one.DESCRIPTOR.fields))
        alike = [other for other in everything if other.DESCRIPTOR is one.DESCRIPTOR]
        _set(chance, one, field, alike)


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _messages(part)


def _holds(message: Message, field: FieldDescriptor) -> bool:
    return bool(len(getattr(message, field.name)) if field.is_repeated else message.HasField(field.name))


def _set(chance: random.Random, one: Message, field: FieldDescriptor, alike: Sequence[Message]) -> None:
    if not chance.randrange(5):
        one.ClearField(field.name)
        return
    other = getattr(chance.choice(alike), field.name)
    if field.is_repeated:
        held = getattr(one, field.name)
        choices: list[Callable[[], object]] = [
            lambda: held.extend(list(other)[: chance.randrange(4)]),
            lambda: held.pop(chance.randrange(len(held))) if held else None,
            lambda: held.insert(0, held.pop()) if held else None,
        ]
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            choices.append(lambda: held.append(_scalar(chance, field)))
            choices.append(lambda: held.__setitem__(chance.randrange(len(held)), _scalar(chance, field)))
        if held or len(choices) == 3:
            chance.choice(choices)()
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(one, field.name).CopyFrom(other)
    else:
        setattr(one, field.name, chance.choice((other, _scalar(chance, field))))


def _scalar(chance: random.Random, field: FieldDescriptor) -> Any:
    """A value of a field's type that is likely to be wrong."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = chance.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_ENUM:
            return chance.choice([value.number for value in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_INT32:
            return chance.choice([n for n in NUMBERS if -(2**31) <= n < 2**31])
        case FieldDescriptor.CPPTYPE_UINT64:
            return chance.choice([n for n in NUMBERS if n >= 0])
        case _:
            return chance.choice(NUMBERS)
