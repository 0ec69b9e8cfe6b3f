"""Answers kept in DynamoDB, one item a request, and the lease by which one caller generates.

TTL deletes late, by hours, so expiry is checked on every read:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/howitworks-ttl.html
"""

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

MAX_ITEM_BYTES = 400 * 1024  # DynamoDB's limit, names and values together
MAX_ANSWER_BYTES = 6 * 1024 * 1024  # Lambda's limit of an answer; more is a bomb
GZIP = 16 + zlib.MAX_WBITS
CONFLICT = "ConditionalCheckFailedException"


class CacheUnavailableError(Exception):
    """DynamoDB did not do what it was asked."""


class ItemTooLargeError(Exception):
    """The answer does not fit into an item."""


class TableClient(Protocol):
    """The part of boto3's dynamodb client that is used."""

    @property
    def get_item(self) -> Callable[..., Any]: ...

    @property
    def put_item(self) -> Callable[..., Any]: ...

    @property
    def update_item(self) -> Callable[..., Any]: ...

    @property
    def delete_item(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the table holds under a key: an answer, another caller's lease, or neither."""

    answer: bytes | None = None
    leased: bool = False
    poisoned: bool = False


@dataclass(frozen=True, slots=True)
class Cache:
    """One table with the string key `cache_key`.  Every method raises CacheUnavailableError."""

    client: TableClient
    table: str
    ttl_seconds: int
    now: Callable[[], float]  # seconds since the epoch

    def get(self, key: str, sound: Callable[[bytes], bool]) -> Lookup:
        """Look a key up; an item that cannot be read, or is not sound, is no answer."""
        item = _checked(lambda: self.client.get_item(TableName=self.table, Key=_key(key))).get(
            "Item"
        )
        if not item:
            return Lookup()
        expiry = _number(item.get("ttl"))
        if expiry is not None and expiry <= self.now():
            return Lookup()
        if "owner" in item and expiry is not None:
            return Lookup(leased=True)
        answer = _unpack(item) if expiry is not None else None
        return Lookup(answer) if answer and sound(answer) else Lookup(poisoned=True)

    def put(self, key: str, answer: bytes) -> None:
        """Keep an answer; raises ItemTooLargeError."""
        packed = gzip.compress(answer, mtime=0)
        item = _key(key) | {"answer": {"B": packed}, "ttl": self._expiry(self.ttl_seconds)}
        if len(packed) + 256 > MAX_ITEM_BYTES:  # 256: the names, the key and the number
            raise ItemTooLargeError(f"{len(packed)} bytes, limit {MAX_ITEM_BYTES}")
        _checked(lambda: self.client.put_item(TableName=self.table, Item=item))

    def claim(self, key: str, owner: str, seconds: float, *, over: bool = False) -> bool:
        """Take the lease of a key unless something fresh is there; over ignores what is there."""
        item = _key(key) | {"owner": {"S": owner}, "ttl": self._expiry(seconds + 1)}
        condition = {} if over else self._if_free()
        try:
            _checked(lambda: self.client.put_item(TableName=self.table, Item=item, **condition))
        except CacheUnavailableError as error:
            if str(error) == CONFLICT:
                return False
            raise
        return True

    def release(self, key: str, owner: str) -> None:
        """Give a lease back, unless somebody else has taken it since."""
        try:
            _checked(
                lambda: self.client.delete_item(
                    TableName=self.table,
                    Key=_key(key),
                    ConditionExpression="#owner = :owner",
                    ExpressionAttributeNames={"#owner": "owner"},
                    ExpressionAttributeValues={":owner": {"S": owner}},
                )
            )
        except CacheUnavailableError as error:
            if str(error) != CONFLICT:
                raise

    def _if_free(self) -> dict[str, Any]:
        return {
            "ConditionExpression": "attribute_not_exists(cache_key) OR #ttl <= :now",
            "ExpressionAttributeNames": {"#ttl": "ttl"},  # a reserved word
            "ExpressionAttributeValues": {":now": {"N": str(int(self.now()))}},
        }

    def _expiry(self, seconds: float) -> dict[str, str]:
        return {"N": str(int(self.now() + seconds))}


def _key(key: str) -> dict[str, Any]:
    return {"cache_key": {"S": key}}


def _number(attribute: Any) -> float | None:
    try:
        return float(attribute["N"])
    except (KeyError, TypeError, ValueError):
        return None


def _unpack(item: Mapping[str, Any]) -> bytes | None:
    try:
        return zlib.decompressobj(GZIP).decompress(item["answer"]["B"], MAX_ANSWER_BYTES)
    except (KeyError, TypeError, zlib.error):
        return None


def _checked(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ClientError as error:
        code = (error.response.get("Error") or {}).get("Code")
        raise CacheUnavailableError(str(code)) from error
    except BotoCoreError as error:
        raise CacheUnavailableError(type(error).__name__) from error
