until curl -sf localhost:8000/v1/models; do sleep 5; done
