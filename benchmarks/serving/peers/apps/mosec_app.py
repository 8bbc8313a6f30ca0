"""mosec, which joins requests."""

from common import predict
from mosec import Server, Worker


class Sum(Worker):
    """Bytes in, bytes out."""

    def deserialize(self, data):
        """Leave it as it is."""
        return bytes(data)

    def serialize(self, data):
        """Leave it as it is."""
        return data

    def forward(self, data):
        """Sums of a batch."""
        return [predict(each) for each in data]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Sum, num=1, max_batch_size=32, max_wait_time=1)
    server.run()
