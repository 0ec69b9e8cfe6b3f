from collections.abc import Callable
from typing import Any

from specinfer.local.dynamodb import TABLE, dynamodb
from specinfer.local.ports import Listeners, Ports


def test_the_table_has_its_key_and_its_ttl(aws: Callable[[str, str], Any]) -> None:
    with (
        Listeners(Ports(rest=0, container=0, runtime=0, dynamodb=0)) as listeners,
        dynamodb(listeners.dynamodb) as url,
    ):
        client = aws("dynamodb", url)
        table = client.describe_table(TableName=TABLE)["Table"]
        assert table["KeySchema"] == [{"AttributeName": "cache_key", "KeyType": "HASH"}]
        ttl = client.describe_time_to_live(TableName=TABLE)["TimeToLiveDescription"]
        assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
        item = {"cache_key": {"S": "k"}, "ttl": {"N": "1"}}
        client.put_item(TableName=TABLE, Item=item)
        assert client.get_item(TableName=TABLE, Key={"cache_key": {"S": "k"}})["Item"] == item
